import type { Test } from 'tap';
import { embeddedVoice } from '../../../src/speech/embedded/index.ts';
import type { Speech, SpeechProvider, Utterance } from '../../../src/speech/provider.ts';

/** An embedded voice that ends with the test, or with the file if given tap itself. */
export function startVoice(t: Pick<Test, 'teardown'>, workers: number): SpeechProvider {
  const voice = embeddedVoice({ workers });
  t.teardown(() => voice.close());
  return voice;
}

/** What to speak, with the fastest voice unless told otherwise. */
export function utterance(wanted: Partial<Utterance> & { readonly text: string }): Utterance {
  return { model: 'tts-1', voice: 'onyx', speed: 1, ...wanted };
}

export async function readAll({ audio }: Speech): Promise<Buffer> {
  const pieces: Uint8Array[] = [];
  for await (const piece of audio) pieces.push(piece);
  return Buffer.concat(pieces);
}

/** The whole MP3 of a text. */
export async function speak(
  voice: SpeechProvider,
  wanted: Partial<Utterance> & { readonly text: string },
): Promise<Buffer> {
  return readAll(await voice.synthesize(utterance(wanted), new AbortController().signal));
}
