import assert from 'node:assert/strict';
import { test } from 'tap';
import { openDatabase } from '../../src/db/database.ts';
import { runPass } from '../../src/reconcile/processor-pass.ts';
import { testDatabase } from '../support/database.ts';

const TURN = { signal: new AbortController().signal, done: () => {}, report: () => {} };
const PAGES = ['a', 'b', 'c'];

test('a page that could not be booked is read again, also when the pass breaks off after it', async (t) => {
  const { url } = await testDatabase(t);
  const db = openDatabase(url, { maxConnections: 2 });
  t.teardown(() => db.destroy());
  const handled: string[] = [];
  let isFaulty = true;
  const steps = {
    read: async (_createdFrom: number, after: string | undefined) => {
      const page = after === undefined ? 0 : PAGES.indexOf(after) + 1;
      if (isFaulty && page === 2) throw new Error('the processor is away');
      return { entries: [{ id: PAGES[page] as string }], hasMore: page < PAGES.length - 1 };
    },
    handle: async ([entry]: readonly { readonly id: string }[]) => {
      const isHandled = !isFaulty || entry?.id !== 'b';
      if (entry && isHandled) handled.push(entry.id);
      return isHandled;
    },
  };
  await assert.rejects(runPass(db, 'refunds', steps, TURN), /is away/);
  assert.deepEqual(handled, ['a']);
  isFaulty = false;
  await runPass(db, 'refunds', steps, TURN);
  assert.deepEqual(handled, ['a', 'b', 'c']);
  const list = await db.selectFrom('processor_list').selectAll().where('name', '=', 'refunds').executeTakeFirst();
  assert.deepEqual([list?.pass_started_at, list?.pass_cursor], [null, null]);
});
