import assert from 'node:assert/strict';
import { mock } from 'node:test';
import { test } from 'tap';
import { Backlog } from '../../../src/speech/embedded/backlog.ts';
import { SpeechError } from '../../../src/speech/provider.ts';

const WORKERS = 2;
/** Of audio; far more than anybody may wait for at the first pace. */
const LONG = 10_000;

const refusal = (given: unknown): SpeechError => {
  assert.ok(given instanceof SpeechError, 'not taken on');
  return given;
};

test('who would wait for too long is refused, and told when to come back', async () => {
  const backlog = new Backlog(WORKERS, 100, 15_000);
  const texts = [backlog.add(LONG), backlog.add(LONG)];
  const { code, transient, retryAfterSeconds } = refusal(backlog.admit(1));
  assert.deepEqual([code, transient], ['TTS_UNAVAILABLE', true]);
  assert.ok((retryAfterSeconds as number) >= 1);
  texts[0]?.end(false);
  assert.ok(!(backlog.admit(LONG) instanceof SpeechError), 'a thread is free');
  refusal(backlog.admit(1));
});

test('short texts are taken on while others run, up to their number', async () => {
  const backlog = new Backlog(WORKERS, 5, 15_000);
  for (let count = 0; count < 5; count++) assert.ok(!(backlog.admit(1) instanceof SpeechError));
  refusal(backlog.admit(1));
});

test('a text that has ended counts no more, however often it is ended', async () => {
  const backlog = new Backlog(1, 2, 15_000);
  const first = backlog.add(1);
  backlog.add(1);
  for (let count = 0; count < 3; count++) first.end(true);
  assert.ok(!(backlog.admit(1) instanceof SpeechError));
  refusal(backlog.admit(1));
});

test('the wait is expected at the pace of the texts before', async (t) => {
  let now = 0;
  t.teardown(() => mock.reset());
  mock.method(performance, 'now', () => now);
  const backlog = new Backlog(1, 100, 15_000);
  for (let count = 0; count < 20; count++) {
    const text = backlog.add(100);
    text.begin();
    now += 100_000;
    text.end(true);
  }
  const running = backlog.add(100);
  running.begin();
  const { retryAfterSeconds } = refusal(backlog.admit(1));
  assert.ok(retryAfterSeconds && retryAfterSeconds > 80 && retryAfterSeconds <= 85, `${retryAfterSeconds}`);
  now += 90_000;
  assert.ok(!(backlog.admit(1) instanceof SpeechError), 'most of it is spoken by now');
});
