import assert from 'node:assert/strict';
import { readFile, truncate, writeFile } from 'node:fs/promises';
import { test } from 'tap';
import type { Book } from '../../src/budget/book.ts';
import { BudgetFile } from '../../src/budget/budget-file.ts';
import { openFileBudget } from '../../src/budget/file-budget.ts';
import { budgetPath, pendingOf, prepaid } from './support.ts';

const NOTHING = { spentMicroUsd: 0n, reservedMicroUsd: 0n };

const stateOf = (book: Book) => ({ spentMicroUsd: book.spentMicroUsd(), reservedMicroUsd: book.reservedMicroUsd(0) });

test('a file cut off at any byte says what its whole lines say, and goes on from there', async (t) => {
  const path = await budgetPath(t);
  /** What each line that was written adds up to, by the length of the file then. */
  const states = new Map<number, { spentMicroUsd: bigint; reservedMicroUsd: bigint }>();
  const budget = await openFileBudget(path, {});
  const keep = async () => {
    const { spentMicroUsd, reservedMicroUsd } = await budget.read();
    states.set((await readFile(path)).length, { spentMicroUsd, reservedMicroUsd });
  };
  const reservation = await budget.reserve(prepaid(1000n));
  await keep();
  await reservation.record(pendingOf('Grüße'));
  await keep();
  const [unrecorded] = await Promise.all([budget.reserve(prepaid(800n)), budget.reserve(prepaid(3n))]);
  await keep();
  await unrecorded.settle(700n);
  await keep();
  await budget.close();

  const whole = await readFile(path);
  for (let length = 0; length <= whole.length; length++) {
    for (const tail of ['', '\0\n']) {
      // What is cut within the form's line can only have been cut: zeros there are another file.
      if (tail && (length % 4 > 0 || length <= whole.indexOf('\n'))) continue;
      await writeFile(path, Buffer.concat([whole.subarray(0, length), Buffer.from(tail)]));
      const file = new BudgetFile(path);
      const book = await file.read();
      const expected = [...states].filter(([end]) => end <= length).at(-1)?.[1] ?? NOTHING;
      assert.deepEqual(stateOf(book), expected, `cut at ${length} of ${whole.length}`);
      if (tail || length % 5 > 0) {
        await file.forget();
        continue;
      }
      const more = { kind: 'spent', day: '2026-11-23', chargedMicroUsd: 5n } as const;
      book.apply(more);
      await file.append([more]);
      await file.forget();
      const { spentMicroUsd, reservedMicroUsd } = expected;
      assert.deepEqual(stateOf(await file.read()), { spentMicroUsd: spentMicroUsd + 5n, reservedMicroUsd });
      await file.forget();
    }
  }
});

test('a tail that another process tore is cut off by one that has the budget open', async (t) => {
  const path = await budgetPath(t);
  const budget = await openFileBudget(path, { totalMicroUsd: 100n });
  t.teardown(() => budget.close());
  await budget.reserve(prepaid(10n));
  const whole = await readFile(path);
  for (const torn of [
    '[',
    '[{"kind":"reserved","id":"x","owner":"y","day":"2026-11-23","maxMicroUsd":"9"}]',
    '\0'.repeat(5000),
  ]) {
    await writeFile(path, Buffer.concat([await readFile(path), Buffer.from(torn)]));
    assert.equal((await budget.read()).reservedMicroUsd, 10n);
    await (await budget.reserve(prepaid(50n))).settle(0n);
  }
  await truncate(path, whole.length);
  assert.equal((await budget.read()).reservedMicroUsd, 10n);
});
