import assert from 'node:assert/strict';
import { type RawBuilder, sql } from 'kysely';
import { type Test, test } from 'tap';
import { type Database, openDatabase } from '../../src/db/database.ts';
import { audit } from '../../src/ledger/audit.ts';
import { captureHold } from '../../src/ledger/hold.ts';
import { addLostAnswer } from '../../src/ledger/lost-answers.ts';
import { placeWalletHold } from '../../src/ledger/wallet-holds.ts';
import { findWallet } from '../../src/ledger/wallets.ts';
import { bookSettlement } from '../../src/x402/book-settlement.ts';
import { testDatabase } from '../support/database.ts';
import { addDoubtfulPayment, bookDeposit } from '../support/prepaid.ts';
import { lockRows } from '../support/row-lock.ts';

const PAYER = `0x${'a'.repeat(40)}`;

async function start(t: Test) {
  const { url } = await testDatabase(t);
  const db = openDatabase(url, { maxConnections: 4 });
  t.teardown(() => db.destroy());
  return { url, db };
}

/** The statement twice at once, as after a connection that broke while the first still ran. */
async function twice<T>(t: Test, url: string, rows: RawBuilder<unknown>, statement: () => Promise<T>): Promise<T[]> {
  const lock = await lockRows(t, url, rows);
  const both = Promise.all([statement(), statement()]);
  await lock.untilWaiting(2);
  await lock.release();
  return both;
}

async function held(db: Database) {
  const expiry = BigInt(Math.floor(Date.now() / 1000) + 60);
  const terms = { address: PAYER, nonce: 'one', expiry, amountMicroUsd: 198n, isPermitted: true };
  const result = await placeWalletHold(db, terms, 60);
  assert.ok(result.outcome === 'held');
  return result.hold;
}

test('a capture that is repeated while the first still runs finds the hold posted', async (t) => {
  const { url, db } = await start(t);
  await bookDeposit(db, PAYER, 1000n);
  const hold = await held(db);
  const rows = sql`select from transfer where id = ${hold.id} for update`;
  assert.deepEqual(await twice(t, url, rows, () => captureHold(db, hold)), [true, true]);
  assert.equal(await findWallet(db, PAYER), 802n);
  assert.deepEqual(await audit(db), []);
});

test('a settlement that is booked again while the first booking still runs is booked once, with one receipt', async (t) => {
  const { url, db } = await start(t);
  const id = await addDoubtfulPayment(db, PAYER, 1000n);
  const rows = sql`select from x402_payment where id = ${id} for update`;
  const book = () => bookSettlement(db, id, { transaction: `0x${'1'.repeat(64)}`, logIndex: 0 }, 'receipt');
  const bookings = await twice(t, url, rows, book);
  assert.deepEqual(
    bookings.map((booking) => booking?.receipt),
    ['receipt', 'receipt'],
  );
  assert.deepEqual(bookings.map((booking) => booking?.isNew).sort(), [false, true]);
  assert.equal(await findWallet(db, PAYER), 1000n);
  assert.deepEqual(await audit(db), []);
});

test('an answer that did not arrive and is noted again keeps its id, by which it is stored', async (t) => {
  const { db } = await start(t);
  await bookDeposit(db, PAYER, 1000n);
  const { id } = await held(db);
  assert.equal(await addLostAnswer(db, id, 100), await addLostAnswer(db, id, 100));
});
