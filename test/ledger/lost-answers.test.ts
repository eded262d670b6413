import assert from 'node:assert/strict';
import { sql } from 'kysely';
import { type Test, test } from 'tap';
import { type Database, openDatabase } from '../../src/db/database.ts';
import { audit } from '../../src/ledger/audit.ts';
import { captureHold } from '../../src/ledger/hold.ts';
import { addLostAnswer, findLostAnswer, lostAnswerStored } from '../../src/ledger/lost-answers.ts';
import { giveBack } from '../../src/ledger/reversal.ts';
import { placeWalletHold } from '../../src/ledger/wallet-holds.ts';
import { findWallet } from '../../src/ledger/wallets.ts';
import { testDatabase } from '../support/database.ts';
import { bookDeposit } from '../support/prepaid.ts';
import { until } from '../support/until.ts';

const PAYER = `0x${'a'.repeat(40)}`;

/** A spend of 198 from 1,000 that is captured, and whose answer was lost. */
async function start(t: Test) {
  const { url } = await testDatabase(t);
  const db = openDatabase(url, { maxConnections: 4 });
  t.teardown(() => db.destroy());
  await bookDeposit(db, PAYER, 1000n);
  const expiry = BigInt(Math.floor(Date.now() / 1000) + 60);
  const terms = { address: PAYER, nonce: 'one', expiry, amountMicroUsd: 198n, isPermitted: true };
  const placed = await placeWalletHold(db, terms, 60);
  assert.ok(placed.outcome === 'held');
  await captureHold(db, placed.hold);
  return { db, hold: placed.hold, answer: await addLostAnswer(db, placed.hold.id, 100) };
}

test('R60: what its caller can fetch stays charged, also when the process that has kept it takes itself for dead', async (t) => {
  const { db, hold, answer } = await start(t);
  await lostAnswerStored(db, answer);
  assert.equal(await giveBack(db, hold), 'ended');
  assert.deepEqual([(await findLostAnswer(db, answer))?.id, await findWallet(db, PAYER)], [answer, 802n]);
  assert.deepEqual(await audit(db), []);
});

test('R60: what is not stored yet is given back, and not offered afterwards', async (t) => {
  const { db, hold, answer } = await start(t);
  assert.equal(await giveBack(db, hold), 'reversed');
  await lostAnswerStored(db, answer);
  assert.deepEqual([await findLostAnswer(db, answer), await findWallet(db, PAYER)], [undefined, 1000n]);
  assert.deepEqual(await audit(db), []);
});

test('R60: what is marked as stored while it is given back stays charged', async (t) => {
  const { db, hold, answer } = await start(t);
  const marking = await db.startTransaction().execute();
  await lostAnswerStored(marking, answer);
  let isOver = false;
  const givenBack = giveBack(db, hold).finally(() => {
    isOver = true;
  });
  await until(async () => isOver || (await waiting(db)) === 1);
  await marking.commit().execute();
  assert.deepEqual([await givenBack, await findWallet(db, PAYER)], ['ended', 802n]);
});

/** Statements that wait for a lock. */
async function waiting(db: Database): Promise<number> {
  const { rows } = await sql`
    select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`.execute(db);
  return rows.length;
}
