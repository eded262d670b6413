/**
 * A failover has lost the last commits, and the database gives out again what it had given out: a process that does not
 * know of that ends nothing of a stranger's.
 */
import assert from 'node:assert/strict';
import { randomBytes, randomUUID } from 'node:crypto';
import { type RawBuilder, sql } from 'kysely';
import { type Test, test } from 'tap';
import type { Address } from '../../src/config/payees.ts';
import { type Database, openDatabase } from '../../src/db/database.ts';
import { findWallet } from '../../src/ledger/accounts.ts';
import { audit } from '../../src/ledger/audit.ts';
import { captureHold, type HoldRecord, renewHolds, voidHold } from '../../src/ledger/hold.ts';
import { contra } from '../../src/ledger/transfer.ts';
import { creditTopUp } from '../../src/payments/top-up/credit-top-up.ts';
import { bookSettlement, bookSettlements } from '../../src/payments/x402/book-settlement.ts';
import type { Payment } from '../../src/payments/x402/payment.ts';
import { Reservations } from '../../src/payments/x402/reservations.ts';
import { testDatabase } from '../support/database.ts';
import { holdOnCard, holdOnWallet } from '../support/holds.ts';
import { bookDeposit, insertPaymentInDoubt } from '../support/prepaid.ts';
import { lockRows } from '../support/row-lock.ts';

const ASSET = { network: 'eip155:8453', address: '0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913' } as never;
const FUNDS = 5_000_000n;
const address = () => `0x${randomBytes(20).toString('hex')}` as Address;

async function start(t: Test) {
  const db = openDatabase((await testDatabase(t)).url, { maxConnections: 2 });
  t.teardown(() => db.destroy());
  const paid = { sessionId: `cs_test_${randomUUID()}`, livemode: false, amountCents: 500, challengeId: null };
  const { accountId: card } = await creditTopUp(db, { ...paid, topUpId: randomUUID(), accountId: randomUUID() });
  const [payer, stranger] = [address(), address()];
  for (const wallet of [payer, stranger]) await bookDeposit(db, wallet, 1_000n);
  return { db, card, payer, stranger };
}

const held = (placed: { outcome: string; hold?: HoldRecord }): HoldRecord => placed.hold ?? assert.fail(placed.outcome);

const spend = (db: Database, wallet: string, nonce: string) =>
  holdOnWallet(db, {
    ...{ address: wallet, nonce, amountMicroUsd: 198n, isWithinMaximum: true },
    expiry: BigInt(Math.floor(Date.now() / 1000) + 60),
  });

async function reserve(db: Database, payer: Address): Promise<Payment> {
  const claim = { payer, nonce: randomUUID(), payTo: address(), amount: 198n, validBefore: 9_999_999_999n } as never;
  const identifier = randomUUID();
  const reservation = { purpose: 'speech', identifier, requestHash: randomBytes(32), headBlock: 1n } as const;
  const usage = { model: 'provider-a/tts-1', characters: 11 };
  const reserved = await new Reservations(db, ASSET).reserve({ ...reservation, claim, usage, traceId: randomUUID() });
  return reserved?.payment ?? assert.fail('a payment is refused');
}

/** Does the work, and then as a failover that loses its commits: its rows are gone, and what sequences gave out. */
async function lostCommits<T>(db: Database, work: (trx: Database) => Promise<T>): Promise<T> {
  const sequences = async () =>
    (
      await sql<{ name: string; value: bigint | null }>`
        select sequencename as name, last_value as value from pg_sequences where schemaname = 'public'`.execute(db)
    ).rows;
  const before = await sequences();
  const undone = new Error('undone');
  let done: T | undefined;
  await db
    .transaction()
    .execute(async (trx) => {
      done = await work(trx);
      throw undone;
    })
    .catch((error) => assert.equal(error, undone));
  for (const { name, value } of before) {
    await sql`select setval(${name}::regclass, ${value ?? 1n}, ${value !== null})`.execute(db);
  }
  return done as T;
}

test('after lost commits a stale process cannot end the hold of another caller', async (t) => {
  const { db, card, payer, stranger } = await start(t);
  const stale = await lostCommits(db, async (trx) => [
    held(await holdOnCard(trx, card, 198n)),
    held(await spend(trx, payer, 'one')),
  ]);
  // In the places of the book that those had, with the same amounts and fences.
  const others = [held(await holdOnCard(db, card, 198n)), held(await spend(db, stranger, 'one'))];
  for (const hold of stale) {
    t.strictSame([...(await renewHolds(db, [hold], 60))], []);
    t.equal(await captureHold(db, hold), false);
    const { isVoided, isCharged, balanceMicroUsd } = await voidHold(db, hold);
    t.strictSame([isVoided, isCharged], [false, false]);
    t.equal(balanceMicroUsd, hold.accountId === card ? FUNDS - 198n : 1_000n, 'what is in the account now');
  }
  const pending = await db.selectFrom('transfer').select('id').where('state', '=', 'pending').execute();
  t.strictSame(pending.map(({ id }) => id).sort(), others.map(({ id }) => id).sort());
  t.strictSame(await audit(db), []);
});

test('only the commit of a hold without a lease waits for the disk', async (t) => {
  const { db, card, payer } = await start(t);
  const commitOf = (work: (trx: Database) => Promise<unknown>) =>
    lostCommits(db, async (trx) => {
      await work(trx);
      return (await sql<{ commit: string }>`select current_setting('synchronous_commit') as commit`.execute(trx)).rows;
    });
  t.strictSame(await commitOf((trx) => holdOnCard(trx, card, 198n)), [{ commit: 'off' }]);
  t.strictSame(await commitOf((trx) => holdOnCard(trx, card, 198n, null)), [{ commit: 'on' }]);
  t.strictSame(await commitOf((trx) => spend(trx, payer, 'one')), [{ commit: 'off' }]);
});

test('after lost commits a stale process cannot touch the payment of another', async (t) => {
  const { db, payer, stranger } = await start(t);
  const stale = await lostCommits(db, (trx) => reserve(trx, payer));
  const other = await reserve(db, stranger);
  const reservations = new Reservations(db, ASSET);
  const state = async () =>
    (await db.selectFrom('x402_payment').select('state').where('id', '=', other.id).executeTakeFirst())?.state;
  t.equal(await reservations.beginSettling(stale), false);
  t.equal(await reservations.release(stale), false);
  await sql`update x402_payment set lease_until = now() - interval '1 second' where id = ${other.id}`.execute(db);
  t.equal(await reservations.takeOver(stale, 1n), undefined);
  t.equal(await state(), 'reserved');
  t.equal(await reservations.beginSettling(other), true);
  const proof = { transaction: `0x${'1'.repeat(64)}`, logIndex: 0 };
  t.equal(await bookSettlement(db, stale.id, proof, 'receipt'), undefined);
  t.equal(await state(), 'settling');
  t.equal((await bookSettlement(db, other.id, proof, 'receipt'))?.isNew, true);
  t.strictSame(await audit(db), []);
});

test('a void without effect reports charged, voided before or missing', async (t) => {
  const { db, card } = await start(t);
  const place = async () => held(await holdOnCard(db, card, 198n));
  const [charged, voided, missing] = [await place(), await place(), { ...(await place()), id: randomUUID() }];
  t.equal(await captureHold(db, charged), true);
  t.equal((await voidHold(db, voided)).isVoided, true);
  const balanceMicroUsd = FUNDS - 2n * 198n;
  t.strictSame(await voidHold(db, charged), { isVoided: false, isCharged: true, balanceMicroUsd });
  t.strictSame(await voidHold(db, voided), { isVoided: false, isCharged: false, balanceMicroUsd });
  t.strictSame(await voidHold(db, missing), { isVoided: false, isCharged: false, balanceMicroUsd });
});

const PAYER = `0x${'a'.repeat(40)}`;

async function startWide(t: Test) {
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

test('a capture repeated while the first still runs finds the hold posted', async (t) => {
  const { url, db } = await startWide(t);
  await bookDeposit(db, PAYER, 1000n);
  const hold = held(await spend(db, PAYER, 'one'));
  const rows = sql`select from transfer where id = ${hold.id} for update`;
  t.strictSame(await twice(t, url, rows, () => captureHold(db, hold)), [true, true]);
  t.equal(await findWallet(db, PAYER), 802n);
  t.strictSame(await audit(db), []);
});

test('a settlement booked twice in parallel is booked once, with one receipt', async (t) => {
  const { url, db } = await startWide(t);
  const id = await insertPaymentInDoubt(db, PAYER, 1000n);
  const rows = sql`select from x402_payment where id = ${id} for update`;
  const book = () => bookSettlement(db, id, { transaction: `0x${'1'.repeat(64)}`, logIndex: 0 }, 'receipt');
  const bookings = await twice(t, url, rows, book);
  t.strictSame(
    bookings.map((booking) => booking?.receipt),
    ['receipt', 'receipt'],
  );
  t.strictSame(bookings.map((booking) => booking?.isNew).sort(), [false, true]);
  t.equal(await findWallet(db, PAYER), 1000n);
  t.strictSame(await audit(db), []);
});

const [ONE, TWO] = [`0x${'1'.repeat(40)}`, `0x${'2'.repeat(40)}`];

test('settlements in one statement are each booked once, to their own payer', async (t) => {
  const { db } = await startWide(t);
  const payments = [
    await insertPaymentInDoubt(db, ONE, 198n, 'speech'),
    await insertPaymentInDoubt(db, ONE, 100_000n),
    await insertPaymentInDoubt(db, TWO, 200_000n),
    await insertPaymentInDoubt(db, TWO, 396n, 'speech'),
  ];
  const booked = await bookSettlements(
    db,
    payments.map((id, logIndex) => ({
      ...{ id, receipt: 'receipt' },
      proof: { transaction: `0x${randomBytes(32).toString('hex')}`, logIndex },
    })),
  );

  t.strictSame(
    booked.map((booking) => booking?.isNew),
    [true, true, true, true],
  );
  const { rows } = await sql<{ kind: string; reference: string; address: string | null; amount: bigint }>`
    select transfer.kind, reference, address, amount_micro_usd as amount
    from transfer join account on account.id = credit_account_id order by amount`.execute(db);
  t.strictSame(rows, [
    { kind: 'settlement', reference: payments[0], address: null, amount: 198n },
    { kind: 'settlement', reference: payments[3], address: null, amount: 396n },
    { kind: 'deposit', reference: payments[1], address: ONE, amount: 100_000n },
    { kind: 'deposit', reference: payments[2], address: TWO, amount: 200_000n },
  ]);
  t.strictSame([await findWallet(db, ONE), await findWallet(db, TWO)], [100_000n, 200_000n]);
  t.strictSame(await audit(db), []);
});

/** A hold of 11 characters at 18 USD for a million. */
const HOLD = {
  kind: 'charge',
  state: 'pending',
  debit_account_id: randomUUID(),
  credit_account_id: contra.cardRevenue,
  amount_micro_usd: 198,
  characters: 11,
  rate_pico_usd: 18_000_000,
};

const KIND = /of a kind that the ledger knows/;
const NOW = /a charge begins as a hold, and a transfer now/;
const LEASE = /the lease of a hold ends within a day/;
const PRICE = /a charge is the price of its characters/;
const ended = { state: 'posted', ended_at: sql`now()` };
const SPEND = { kind: 'spend', reference: 'one', credit_account_id: contra.prepaidRevenue };

const CASES: [string, Record<string, unknown>, RegExp | undefined][] = [
  ['a hold', {}, undefined],
  ['a hold whose lease ends in an hour', { lease_until: sql`now() + interval '1 hour'` }, undefined],
  ['a hold of a spend', SPEND, undefined],
  ['a charge of an older release', { characters: null, rate_pico_usd: null }, undefined],
  ['a charge without a rate', { rate_pico_usd: null, amount_micro_usd: 7 }, undefined],
  ['a price that is rounded up', { characters: 1, rate_pico_usd: 1, amount_micro_usd: 1 }, undefined],
  ['a price that is not rounded up', { characters: 11, rate_pico_usd: 18_000_001, amount_micro_usd: 198 }, PRICE],
  ['a price that is too high', { amount_micro_usd: 199 }, PRICE],
  ['a price for zero characters', { characters: 0, rate_pico_usd: null, amount_micro_usd: 1 }, PRICE],
  ['a rate without characters', { characters: null }, PRICE],
  ['characters on a transfer that is not a charge', { ...ended, kind: 'top_up', reference: 'cs' }, PRICE],
  ['an unknown kind', { kind: 'gift', reference: 'x' }, KIND],
  ['a charge that has ended already', ended, NOW],
  ['a spend that has ended already', { ...SPEND, ...ended }, NOW],
  ['a transfer dated yesterday', { created_at: sql`now() - interval '1 day'` }, NOW],
  ['a lease of two days', { lease_until: sql`now() + interval '2 days'` }, LEASE],
];

test('the ledger accepts only transfers that a service can make', async (t) => {
  const db = openDatabase((await testDatabase(t)).url, { maxConnections: 1 });
  t.teardown(() => db.destroy());
  for (const [name, columns, refusal] of CASES) {
    const row = { ...HOLD, ...columns } as never;
    const inserted = db.insertInto('transfer').values(row).execute();
    if (refusal) await assert.rejects(inserted, refusal, name);
    else await inserted;
  }
});

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
      return holdOnWallet(db, { address: PAYER, nonce: 'one', expiry, amountMicroUsd, isWithinMaximum: true }, 60);
    },
  ],
  ['card account', (db) => topUp(db, randomUUID()), (db, amountMicroUsd) => holdOnCard(db, CARD, amountMicroUsd, 60)],
];

for (const [name, credit, debit] of FLOWS) {
  test(`a ${name} debit that waits for a credit sees the new balance`, async (t: Test) => {
    const { url, db } = await startWide(t);
    await credit(db);
    const lock = await lockRows(t, url, sql`select from account where kind <> 'contra' for update`);
    const credited = credit(db);
    await lock.untilWaiting(1);
    const debited = debit(db, 15_000n);
    await lock.untilWaiting(2);
    await lock.release();
    await credited;
    t.equal((await debited).outcome, 'placed');
    const { rows } = await sql`select balance_micro_usd as balance from account where kind <> 'contra'`.execute(db);
    t.strictSame(rows, [{ balance: 5000n }]);
    t.strictSame(await audit(db), []);
  });
}
