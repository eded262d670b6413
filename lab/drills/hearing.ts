import { execFile } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { missingProgram } from '../../test/support/missing-program.ts';

const RECOGNIZER = 'pocketsphinx_continuous';
const run = promisify(execFile);

/** Why what was spoken can't be recognised here; false where it can. */
export const withoutRecognizer: string | false = missingProgram('ffmpeg') ?? missingProgram(RECOGNIZER) ?? false;

/** The words that a speech recogniser finds in an MP3. */
export async function hear(mp3: Uint8Array): Promise<string[]> {
  const directory = await mkdtemp(join(tmpdir(), 'speechgate-hearing-'));
  try {
    const [source, wav] = [join(directory, 'speech.mp3'), join(directory, 'speech.wav')];
    await writeFile(source, mp3);
    // The recogniser wants some silence around an utterance.
    await run('ffmpeg', [
      '-v',
      'error',
      '-i',
      source,
      '-af',
      'adelay=300,apad=pad_dur=0.3',
      '-ar',
      '16000',
      '-ac',
      '1',
      wav,
    ]);
    const { stdout } = await run(RECOGNIZER, ['-infile', wav, '-logfn', '/dev/null']);
    return stdout.trim().split(/\s+/);
  } finally {
    await rm(directory, { recursive: true });
  }
}
