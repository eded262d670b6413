import { buffer } from 'node:stream/consumers';
import type { Test } from 'tap';
import { Voice } from '../../../src/sandbox/voice/voice.ts';
import type { Utterance } from '../../../src/sandbox/voice/voice-worker.ts';

const NEVER = new AbortController().signal;

/** A voice that ends with the test, or with the file if given tap itself. */
export function startVoice(t: Pick<Test, 'teardown'>, threads: number): Voice {
  const voice = new Voice({ threads });
  t.teardown(() => voice.close());
  return voice;
}

/** The whole MP3 of a text, by the fastest voice unless told otherwise. */
export async function speak(
  voice: Voice,
  wanted: Partial<Utterance> & { readonly text: string },
  signal = NEVER,
): Promise<Buffer> {
  return buffer(await voice.speak({ model: 'tts-1', voice: 'onyx', speed: 1, ...wanted }, signal));
}
