import { text as readAll } from 'node:stream/consumers';
import type { SpeechOrder } from '../../client/speech.ts';
import { UsageError } from '../usage-error.ts';

/** What is spoken, and how. */
export const SPEECH_OPTIONS = {
  voice: { type: 'string' },
  model: { type: 'string' },
  speed: { type: 'string' },
} as const;

export const SPEECH_USAGE = `
  TEXT             what to say; - reads it from standard input
  --voice VOICE    one of those that speechgate voices lists
  --model MODEL    one of those that speechgate models lists
  --speed SPEED    0.5 to 2; 1 is the voice's own`;

interface GivenSpeech {
  readonly voice?: string | undefined;
  readonly model?: string | undefined;
  readonly speed?: string | undefined;
}

/**
 * The order that a command line is.
 * @throws UsageError
 */
export async function readOrder(given: GivenSpeech, word: string | undefined): Promise<SpeechOrder> {
  const { voice, model, speed } = given;
  return {
    text: await readText(word, 'The text'),
    ...(model !== undefined && { model }),
    ...(voice !== undefined && { voice }),
    ...(speed !== undefined && { speed: readSpeed(speed) }),
  };
}

/**
 * A text that was said, or what standard input has for `-`.
 * @throws UsageError when there is none
 */
export async function readText(word: string | undefined, name: string): Promise<string> {
  if (word === undefined) throw new UsageError(`${name} is missing. Put it into quotes, or pipe it in and say -.`);
  const text = word === '-' ? await readAll(process.stdin) : word;
  if (text.trim() === '') throw new UsageError(`${name} is empty.`);
  return text;
}

function readSpeed(text: string): number {
  const speed = Number(text);
  if (text.trim() !== '' && speed >= 0.5 && speed <= 2) return speed;
  throw new UsageError(`--speed takes a number from 0.5 to 2; it is ${text}.`);
}
