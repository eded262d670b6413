import assert from 'node:assert/strict';
import { once } from 'node:events';
import { type Test, test } from 'tap';
import { loadEngine } from '../../../src/speech/embedded/engine.ts';
import { ThreadPool } from '../../../src/speech/embedded/pool.ts';
import { SpeechThread } from '../../../src/speech/embedded/thread.ts';
import { utterance } from './speak.ts';

const never = new AbortController().signal;

test('a thread that is released while busy is replaced at once', async (t) => {
  const { pool, events } = await startPool(t, await loadEngine());
  const thread = await pool.acquire(never);
  const piece = assert.rejects(thread.ask(utterance({ text: 'Hello' })), { code: 'TTS_UNAVAILABLE' });
  pool.release(thread);
  await piece;
  await once(events, 'replaced');
  const next = await pool.acquire(never);
  assert.notEqual(next, thread);
  assert.ok((await next.ask(utterance({ text: 'Hello' })))?.length);
});

test('a thread that ends by itself is replaced when one is wanted, not for ever', async (t) => {
  const { pool, events, started } = await startPool(t, 'no engine' as unknown as WebAssembly.Module);
  await once(events, 'ended');
  assert.equal(started(), 1);
  const thread = await pool.acquire(never);
  assert.equal(started(), 2);
  await assert.rejects(thread.ask(utterance({ text: 'Hello' })), { code: 'TTS_UNAVAILABLE', transient: true });
});

/** A pool of one thread. Its events: `ended` when a thread has ended, `replaced` when another was started for it. */
async function startPool(t: Test, engine: WebAssembly.Module) {
  const events = new EventTarget();
  let threads = 0;
  const pool = new ThreadPool(1, 1, (onExit) => {
    threads++;
    return new SpeechThread(engine, () => {
      const before = threads;
      onExit();
      events.dispatchEvent(new Event('ended'));
      if (threads > before) events.dispatchEvent(new Event('replaced'));
    });
  });
  t.teardown(() => pool.close());
  return { pool, events, started: () => threads };
}
