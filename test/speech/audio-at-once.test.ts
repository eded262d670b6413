import assert from 'node:assert/strict';
import { Readable } from 'node:stream';
import { text } from 'node:stream/consumers';
import { test } from 'tap';
import { type Begun, takeAtOnce } from '../../src/speech/audio-at-once.ts';
import { ChunkQueue } from '../../src/speech/chunk-queue.ts';

/** A queue of a provider that has given these bytes so far. */
function given(...chunks: string[]) {
  const source = {
    isCancelled: false,
    resume() {},
    cancel() {
      source.isCancelled = true;
    },
  };
  const queue = new ChunkQueue(source);
  for (const chunk of chunks) queue.push(Buffer.from(chunk));
  return { queue, source };
}

const textOf = ({ audio }: Begun) => text(Readable.from(audio));

async function flowing(audio: AsyncIterable<Uint8Array>) {
  const begun = await takeAtOnce(audio);
  if (begun.outcome !== 'flowing') throw new Error(`It is ${begun.outcome}.`);
  return begun;
}

test('audio that ends in the turn in which it begins is whole', async () => {
  const { queue } = given('one ', 'two ');
  queue.push(Buffer.from('three'));
  queue.close();
  assert.deepEqual(await takeAtOnce(queue), { outcome: 'whole', audio: Buffer.from('one two three') });
});

test('audio whose end is not there yet flows, nothing of it lost or in another order', async () => {
  const { queue } = given('one ', 'two ');
  const begun = await flowing(queue);
  queue.push(Buffer.from('three'));
  queue.close();
  assert.equal(await textOf(begun), 'one two three');
});

test('audio that is more than a write takes flows, even when it has ended', async () => {
  const { queue } = given('a'.repeat(40_000), 'b'.repeat(40_000), 'c');
  queue.close();
  assert.equal((await textOf(await flowing(queue))).length, 80_001);
});

test('audio that breaks off at once is refused, and later once it is read', async () => {
  const { queue: atOnce } = given('one');
  atOnce.close(new Error('cut'));
  await assert.rejects(takeAtOnce(atOnce), /cut/);

  const { queue: later } = given('one');
  const begun = await flowing(later);
  later.close(new Error('cut later'));
  await assert.rejects(textOf(begun), /cut later/);
});

test('who stops reading stops the provider', async () => {
  const { queue, source } = given('a'.repeat(70_000));
  for await (const chunk of (await flowing(queue)).audio) {
    assert.equal(chunk.length, 70_000);
    break;
  }
  assert.ok(source.isCancelled);
});
