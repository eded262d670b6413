// Each message gets one reply: an utterance the first piece of a narration, null the next piece.

import { parentPort, workerData } from 'node:worker_threads';
import { Mp3Encoder } from './encoder.ts';
import { FLITE_SAMPLE_RATE, Flite, recipeOf } from './flite.ts';
import { segmentsOf } from './segments.ts';

export interface Utterance {
  readonly text: string;
  readonly model: string;
  readonly voice: string;
  readonly speed: number;
}

export type Reply = Uint8Array<ArrayBuffer> | 'end' | 'failed';

/** For a text with nothing to speak. */
const SECONDS_OF_SILENCE = 0.5;

if (parentPort === null) throw new Error('voice-worker.ts must run in a worker thread.');
const port = parentPort;

const flite = new Flite(workerData as WebAssembly.Module);
const encoder = await Mp3Encoder.create();
let narration: Iterator<Uint8Array<ArrayBuffer>> = [][Symbol.iterator]();

port.on('message', (utterance: Utterance | null) => {
  const reply = nextReply(utterance);
  port.postMessage(reply, typeof reply === 'string' ? [] : [reply.buffer]);
});

function nextReply(utterance: Utterance | null): Reply {
  try {
    if (utterance !== null) narration = narrate(utterance);
    const { done, value } = narration.next();
    return done === true ? 'end' : value;
  } catch {
    return 'failed';
  }
}

function* narrate({ text, model, voice, speed }: Utterance): Generator<Uint8Array<ArrayBuffer>> {
  const recipe = recipeOf(voice);
  // A scaled sample rate scales all frequencies. The stretch keeps the duration.
  const sampleRate = Math.round(FLITE_SAMPLE_RATE * recipe.shift);
  const stretch = sampleRate / FLITE_SAMPLE_RATE / speed;
  encoder.start({ sampleRate, kilobitsPerSecond: model === 'tts-1-hd' ? 96 : 48, gain: recipe.gain });

  let isSilent = true;
  for (const segment of segmentsOf(text)) {
    const samples = flite.speak(segment, recipe, stretch);
    if (samples.length > 0) isSilent = false;
    const piece = encoder.encode(samples);
    if (piece.length > 0) yield piece;
  }

  if (isSilent) yield encoder.encode(new Int16Array(SECONDS_OF_SILENCE * sampleRate));
  yield encoder.finish();
}
