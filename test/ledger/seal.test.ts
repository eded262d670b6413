import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { sql } from 'kysely';
import { type Test, test } from 'tap';
import { type Database, openDatabase } from '../../src/db/database.ts';
import { placeCardHold } from '../../src/ledger/card-holds.ts';
import { contra } from '../../src/ledger/contra.ts';
import { captureHold } from '../../src/ledger/hold.ts';
import { newestSealable, parseSeal, sealUpTo } from '../../src/ledger/seal.ts';
import { creditTopUp } from '../../src/top-up/credit-top-up.ts';
import { testDatabase } from '../support/database.ts';
import { unguarded } from '../support/unguarded.ts';

async function start(t: Test): Promise<{ db: Database; accountId: string }> {
  const db = openDatabase((await testDatabase(t)).url, { maxConnections: 2 });
  t.teardown(() => db.destroy());
  const paid = {
    topUpId: randomUUID(),
    sessionId: 'cs_1',
    accountId: randomUUID(),
    amountCents: 500,
    challengeId: null,
    livemode: false,
  };
  return { db, accountId: (await creditTopUp(db, paid)).accountId };
}

async function hold(db: Database, accountId: string) {
  const held = await placeCardHold(db, accountId, 100n, 60);
  assert.ok(held.outcome === 'held');
  return held.hold;
}

test('a seal ends before the first hold that is pending, and before what is young enough to have company', async (t) => {
  const { db, accountId } = await start(t);
  assert.equal(await newestSealable(db), undefined, 'a transfer of this moment');
  assert.equal(await newestSealable(db, 0), 1n);
  const [first, second] = [await hold(db, accountId), await hold(db, accountId)];
  await captureHold(db, second);
  assert.equal(await newestSealable(db, 0), 1n);
  await captureHold(db, first);
  assert.equal(await newestSealable(db, 0), second.id);
});

test('a seal stays what it was while transfers come, and shows any change of those that it covers', async (t) => {
  const { db, accountId } = await start(t);
  const earlier = await hold(db, accountId);
  await captureHold(db, earlier);
  const seal = await sealUpTo(db, earlier.id);
  const later = await hold(db, accountId);
  assert.deepEqual(await sealUpTo(db, seal.upTo), seal);
  assert.notEqual((await sealUpTo(db, later.id)).hash, seal.hash);

  const columns = [
    ...['kind', 'state', 'debit_account_id', 'credit_account_id', 'amount_micro_usd', 'reference', 'created_at'],
    ...['ended_at', 'characters', 'rate_pico_usd', 'trace_id'],
  ];
  const others: Record<string, string> = {
    kind: `'spend', reference = 'x'`,
    state: `'voided'`,
    reference: `'cs_2'`,
    characters: '1',
    amount_micro_usd: '99',
    rate_pico_usd: '1',
    created_at: `created_at - interval '1 microsecond'`,
    ended_at: `ended_at + interval '1 microsecond'`,
  };
  for (const column of columns) {
    const where = column === 'reference' ? 'id = 1' : 'id = 2';
    const changed = `update transfer set ${column} = ${others[column] ?? 'gen_random_uuid()'} where ${where}`;
    await db
      .transaction()
      .execute(async (trx) => {
        await unguarded(trx, () => sql.raw(changed).execute(trx));
        assert.notEqual((await sealUpTo(trx, seal.upTo)).hash, seal.hash, changed);
        await unguarded(trx, () => sql.raw(`update transfer set fence = fence`).execute(trx));
        await sql`select 1`.execute(trx);
        throw new Error('undo');
      })
      .catch((error) => assert.equal(error.message, 'undo'));
  }
  await unguarded(db, (trx) => sql`delete from transfer where id = 1`.execute(trx));
  assert.notEqual((await sealUpTo(db, seal.upTo)).hash, seal.hash, 'one is missing');
});

test('a seal is the same however far the database has come, over many steps with gaps between them', async (t) => {
  const { db, accountId } = await start(t);
  const insert = (count: number) => sql`
    insert into transfer (kind, state, debit_account_id, credit_account_id, amount_micro_usd)
    select 'charge', 'pending', ${accountId}, ${contra.cardRevenue}, 1 from generate_series(1, ${count}::int)`;
  await insert(15_000).execute(db);
  await sql`select setval(pg_get_serial_sequence('transfer', 'id'), 52000)`.execute(db);
  await insert(15_000).execute(db);
  const steps: bigint[] = [];
  const seal = await sealUpTo(db, 60_500n, (id) => steps.push(id));
  assert.deepEqual(steps, [9_999n, 19_999n, 59_999n, 60_500n]);
  await insert(10).execute(db);
  assert.deepEqual(await sealUpTo(db, 60_500n), seal);
  await unguarded(db, (trx) => sql`update transfer set amount_micro_usd = 2 where id = 12345`.execute(trx));
  assert.notEqual((await sealUpTo(db, 60_500n)).hash, seal.hash);
});

test('a seal is read as it is printed', async () => {
  const hash = 'ab'.repeat(32);
  assert.deepEqual(parseSeal(`12:${hash}`), { upTo: 12n, hash });
  assert.deepEqual(parseSeal(` 12 ${hash.toUpperCase()}\n`), { upTo: 12n, hash });
  for (const text of ['', '12', hash, `12:${hash}0`, `-1:${hash}`, `12:${hash.slice(1)}`]) {
    assert.equal(parseSeal(text), undefined, text);
  }
});
