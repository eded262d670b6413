import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { sql } from 'kysely';
import { type Test, test } from 'tap';
import { type Database, openDatabase } from '../../src/db/database.ts';
import { audit } from '../../src/ledger/audit.ts';
import { placeCardHold } from '../../src/ledger/card-holds.ts';
import { placeWalletHold } from '../../src/ledger/wallet-holds.ts';
import { creditTopUp } from '../../src/top-up/credit-top-up.ts';
import { testDatabase } from '../support/database.ts';
import { bookDeposit } from '../support/prepaid.ts';
import { lockRows } from '../support/row-lock.ts';

const PAYER = `0x${'a'.repeat(40)}`;
const CARD = '7c9e6679-7425-40de-944b-e07fc1f90ae7';

const topUp = (db: Database, sessionId: string) =>
  creditTopUp(db, {
    topUpId: sessionId,
    sessionId,
    accountId: CARD,
    livemode: false,
    amountCents: 1,
    challengeId: null,
  });

const FLOWS: [
  string,
  (db: Database) => Promise<unknown>,
  (db: Database, amount: bigint) => Promise<{ outcome: string }>,
][] = [
  [
    'wallet',
    (db) => bookDeposit(db, PAYER, 10_000n),
    (db, amountMicroUsd) => {
      const expiry = BigInt(Math.floor(Date.now() / 1000) + 60);
      return placeWalletHold(db, { address: PAYER, nonce: 'one', expiry, amountMicroUsd, isPermitted: true }, 60);
    },
  ],
  [
    'card account',
    (db) => topUp(db, randomUUID()),
    (db, amountMicroUsd) => placeCardHold(db, CARD, amountMicroUsd, 60),
  ],
];

for (const [name, credit, debit] of FLOWS) {
  test(`a debit of a ${name} that waits while money comes in is judged by what is there then`, async (t: Test) => {
    const { url } = await testDatabase(t);
    const db = openDatabase(url, { maxConnections: 4 });
    t.teardown(() => db.destroy());
    await credit(db);
    const lock = await lockRows(t, url, sql`select from account where kind <> 'contra' for update`);
    const credited = credit(db);
    await lock.untilWaiting(1);
    const debited = debit(db, 15_000n);
    await lock.untilWaiting(2);
    await lock.release();
    await credited;
    assert.equal((await debited).outcome, 'held');
    const { rows } = await sql`select balance_micro_usd as balance from account where kind <> 'contra'`.execute(db);
    assert.deepEqual(rows, [{ balance: 5000n }]);
    assert.deepEqual(await audit(db), []);
  });
}
