import assert from 'node:assert/strict';
import { test } from 'tap';
import { ChunkQueue } from '../../src/speech/chunk-queue.ts';

function queue() {
  const calls: string[] = [];
  const source = { resume: () => calls.push('resume'), cancel: () => calls.push('cancel') };
  return { calls, chunks: new ChunkQueue(source) };
}

test('asks for a pause when a consumer is slow, and resumes once half has been read', async () => {
  const { calls, chunks } = queue();
  const quarter = new Uint8Array(64 * 1024);
  assert.deepEqual(
    [1, 2, 3, 4].map(() => chunks.push(quarter)),
    [true, true, true, false],
  );
  await chunks.next();
  await chunks.next();
  assert.deepEqual(calls, []);
  await chunks.next();
  assert.deepEqual(calls, ['resume']);
});

test('bounds the number of tiny chunks too', async () => {
  const { chunks } = queue();
  let pushed = 1;
  while (chunks.push(new Uint8Array(1))) pushed++;
  assert.equal(pushed, 1024);
});

test('hands over the same memory in order, then the end', async () => {
  const { chunks } = queue();
  const [first, second] = [Uint8Array.of(1), Uint8Array.of(2)];
  const early = chunks.next();
  chunks.push(first);
  chunks.push(second);
  chunks.close();
  assert.equal((await early).value, first);
  assert.equal((await chunks.next()).value, second);
  assert.deepEqual(await chunks.next(), { value: undefined, done: true });
});

test('shows an error of close after the chunks, and an error of abort at once', async () => {
  const closed = queue().chunks;
  closed.push(Uint8Array.of(1));
  closed.close(new Error('broken'));
  assert.equal((await closed.next()).done, false);
  await assert.rejects(closed.next(), /broken/);

  const aborted = queue().chunks;
  aborted.push(Uint8Array.of(1));
  aborted.abort(new Error('stopped'));
  await assert.rejects(aborted.next(), /stopped/);
});

test('cancels the source when the consumer stops early, also before its first step, and not after the end', async () => {
  const early = queue();
  early.chunks.push(Uint8Array.of(1));
  await early.chunks.return();
  assert.deepEqual(early.calls, ['cancel']);
  assert.deepEqual(await early.chunks.next(), { value: undefined, done: true });

  const late = queue();
  late.chunks.close();
  await late.chunks.return();
  assert.deepEqual(late.calls, []);
});

test('ends a step that is being awaited when the consumer stops', async () => {
  const { chunks } = queue();
  const waiting = chunks.next();
  await chunks.return();
  assert.deepEqual(await waiting, { value: undefined, done: true });
});
