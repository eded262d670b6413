import assert from 'node:assert/strict';
import fc from 'fast-check';
import { test } from 'tap';
import type { RollingWindow } from '../../src/limits/rolling-window.ts';
import type { Slot } from '../../src/limits/slot.ts';
import { recordStatements } from '../support/recorded-statements.ts';
import { ip, setUp } from './bucket.ts';

const MICROS = 1_000_000;

/** Attempts at the same moment, each on the bucket that its letter names. */
const takeAtOnce = (limits: RollingWindow, keys: string, run = ''): Promise<Slot[]> =>
  Promise.all([...keys].map((key) => limits.take(ip(run + key))));

/** Allowed with so many left, or refused until so many seconds later. */
const told = (slots: readonly Slot[]): string[] =>
  slots.map(({ allowed, remaining, resetSeconds }) => `${allowed ? remaining : 'refused'} ${resetSeconds}`);

const CASES: readonly { title: string; steps: readonly (readonly [pause: string, keys: string, told: string[]])[] }[] =
  [
    {
      title: 'a new bucket gives its slots to the first attempts',
      steps: [['0', 'aaaa', ['2 10', '1 10', '0 10', 'refused 10']]],
    },
    {
      title: 'as many attempts as there are slots',
      steps: [['0', 'aaa', ['2 10', '1 10', '0 10']]],
    },
    {
      title: 'more attempts than slots that are left',
      steps: [
        ['0', 'a', ['2 10']],
        ['4 seconds', 'aaaa', ['1 6', '0 6', 'refused 6', 'refused 6']],
      ],
    },
    {
      title: 'no slot is left',
      steps: [
        ['0', 'aaa', ['2 10', '1 10', '0 10']],
        ['9.999999 seconds', 'aa', ['refused 1', 'refused 1']],
      ],
    },
    {
      title: 'some slots have just come back',
      steps: [
        ['0', 'aa', ['2 10', '1 10']],
        ['5 seconds', 'a', ['0 5']],
        ['5 seconds', 'aaa', ['1 5', '0 5', 'refused 5']],
      ],
    },
    {
      title: 'all slots have come back',
      steps: [
        ['0', 'aaa', ['2 10', '1 10', '0 10']],
        ['10 seconds', 'aaaa', ['2 10', '1 10', '0 10', 'refused 10']],
      ],
    },
    {
      title: 'several buckets, each with a count of its own',
      steps: [
        ['0', 'ab', ['2 10', '2 10']],
        ['3 seconds', 'abacaab', ['1 7', '1 7', '0 7', '2 10', 'refused 7', 'refused 7', '0 7']],
      ],
    },
  ];

for (const { title, steps } of CASES) {
  test(`attempts at the same moment: ${title}`, async (t) => {
    const { clock, limits } = await setUp(t, { max: 3, windowSeconds: 10 });
    const statements = recordStatements(t);
    for (const [pause, keys, expected] of steps) {
      await clock.advance(pause);
      statements.take();
      assert.deepEqual(told(await takeAtOnce(limits, keys)), expected, `${keys} after ${pause}`);
      const asked = statements.recorded.map(({ text }) => text);
      assert.equal(asked.length, 1, `in one statement: ${asked.join('\n')}`);
    }
  });
}

test('attempts at the same moment, at random ones, get what an exact rolling window gives one after the other', async (t) => {
  const max = 4;
  const windowSeconds = 10;
  const { clock, limits } = await setUp(t, { max, windowSeconds });
  const step = fc.record({
    keys: fc.array(fc.constantFrom('a', 'b', 'c'), { minLength: 1, maxLength: 12 }),
    // Whole seconds meet the window's edges exactly; the odd microseconds fall just beside them.
    pauseMicros: fc.oneof(
      fc.integer({ min: 0, max: 11 }).map((seconds) => seconds * MICROS),
      fc.constantFrom(1, 999_999, 9_999_999, 10_000_001),
    ),
  });
  await fc.assert(
    fc.asyncProperty(fc.array(step, { minLength: 1, maxLength: 20 }), fc.uuid(), async (steps, run) => {
      const model = new Map<string, number[]>();
      let now = 0;
      for (const { keys, pauseMicros } of steps) {
        now += pauseMicros;
        await clock.advance(`${pauseMicros} microseconds`);
        const expected = keys.map((key) => {
          const live = (model.get(key) ?? []).filter((taken) => now - taken < windowSeconds * MICROS);
          const allowed = live.length < max;
          if (allowed) live.push(now);
          model.set(key, live);
          const resetSeconds = Math.ceil(((live[0] ?? 0) + windowSeconds * MICROS - now) / MICROS);
          return { scope: 'ip', allowed, limit: max, windowSeconds, remaining: max - live.length, resetSeconds };
        });
        assert.deepEqual(await takeAtOnce(limits, keys.join(''), run), expected);
      }
    }),
    { numRuns: 60 },
  );
});
