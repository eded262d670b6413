// Runs in a worker thread and answers each message with one reply: an utterance starts a narration and asks for its first
// piece, null asks for the next one. A narration that was left unfinished is dropped by the next utterance.

import { parentPort, workerData } from 'node:worker_threads';
import type { Utterance } from '../provider.ts';
import { Mp3Encoder } from './encoder.ts';
import { Flite } from './flite.ts';
import { narrate } from './narrator.ts';

/** A piece of the MP3 stream, or why there is none. */
export type Reply = Uint8Array<ArrayBuffer> | 'end' | 'failed';

if (parentPort === null) throw new Error('This module runs in a worker thread only');
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
    if (utterance !== null) narration = narrate(utterance, flite, encoder);
    const { done, value } = narration.next();
    return done === true ? 'end' : value;
  } catch {
    return 'failed';
  }
}
