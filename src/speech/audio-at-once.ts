import { setImmediate as endOfTurn } from 'node:timers/promises';

/** More than this is not waited for: it is about what a connection takes in one write. */
const MAX_BYTES = 64 * 1024;

/** All of the audio, where its provider gave it at once; otherwise what there is and what follows, to be iterated once. */
export type Begun =
  | { readonly outcome: 'whole'; readonly audio: Buffer }
  | { readonly outcome: 'flowing'; readonly audio: AsyncIterable<Uint8Array> };

/**
 * Takes what a provider gives in this turn of the event loop: short audio is whole by then, as a rule, and needs no
 * stream (R55). Rejects as iterating does.
 */
export async function takeAtOnce(audio: AsyncIterable<Uint8Array>): Promise<Begun> {
  const source = audio[Symbol.asyncIterator]();
  const turn = endOfTurn();
  const chunks: Uint8Array[] = [];
  let size = 0;
  while (size <= MAX_BYTES) {
    const step = source.next();
    const taken = await Promise.race([step, turn]);
    if (!taken) return { outcome: 'flowing', audio: flow(chunks, source, step) };
    if (taken.done) return { outcome: 'whole', audio: Buffer.concat(chunks, size) };
    chunks.push(taken.value);
    size += taken.value.length;
  }
  return { outcome: 'flowing', audio: flow(chunks, source) };
}

async function* flow(
  taken: readonly Uint8Array[],
  source: AsyncIterator<Uint8Array>,
  next?: Promise<IteratorResult<Uint8Array>>,
): AsyncIterable<Uint8Array> {
  try {
    yield* taken;
    for (let step = await (next ?? source.next()); !step.done; step = await source.next()) yield step.value;
  } finally {
    await source.return?.();
  }
}
