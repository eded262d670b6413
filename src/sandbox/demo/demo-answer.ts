import { replaceOwnFile } from '../../lib/private-files.ts';

/** The answer, when it is a success; else its error is shown and the demo ends. */
export async function succeeded(response: Response): Promise<Response> {
  if (response.ok) return response;
  console.error(`  answered ${response.status}: ${await response.text()}`);
  process.exit(1);
}

/** Writes the audio of an answer. */
export async function saveSpeech(file: string, response: Response): Promise<void> {
  const audio = Buffer.from(await (await succeeded(response)).arrayBuffer());
  await replaceOwnFile(file, audio);
  console.log(`  ${audio.length} bytes of speech in ${file}`);
}
