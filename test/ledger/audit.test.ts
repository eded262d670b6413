import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { type RawBuilder, sql } from 'kysely';
import { test } from 'tap';
import { type Database, openDatabase } from '../../src/db/database.ts';
import { chargeInvariants } from '../../src/ledger/audit/charges.ts';
import { purchaseInvariants } from '../../src/ledger/audit/credited-purchases.ts';
import { guardInvariants } from '../../src/ledger/audit/guards.ts';
import { timeInvariants } from '../../src/ledger/audit/times.ts';
import { audit, invariants } from '../../src/ledger/audit.ts';
import { contra } from '../../src/ledger/contra.ts';
import { captureHold, placeHold, voidHold } from '../../src/ledger/hold.ts';
import { reverseCharge } from '../../src/ledger/reversal.ts';
import { placeSpend, pruneNonces } from '../../src/ledger/wallets.ts';
import { creditTopUp } from '../../src/top-up/credit-top-up.ts';
import { bookSettlement } from '../../src/x402/book-settlement.ts';
import { testDatabase } from '../support/database.ts';
import { brokenRules, rolledBack } from '../support/rolled-back.ts';
import { unguarded } from '../support/unguarded.ts';

const CARD_TOTAL =
  "the card accounts' balances are the posted top-ups less the pending and posted charges that are not reversed";
const OWN_TRANSFERS = "an account's balance is the sum of its own transfers";
const NEGATIVE = 'no balance is negative';
const STRAY = 'both accounts of a transfer exist';
const SIDES = 'a transfer runs between the accounts that its kind names';
const SESSION = 'a checkout session is credited at most once, and only as a credited top-up of that amount';
const HOLD = 'a hold has ended, is within its lease, or is owned by a live job';
const SETTLEMENT = 'a settled payment has exactly one settlement of its amount, and no other payment has one';
const WALLET_TOTAL =
  "the wallets' balances are their deposits less the pending and posted spends that are not reversed";
const REVERSAL = 'a reversal gives back one posted charge or spend of a request, whole, once, and with its reason';
const PAYER = 'a deposit is credited to the account of its payer';
const NONCE = 'a nonce is spent if and only if a wallet was debited for it';
const CHAIN = 'a transfer on the chain pays for one payment at most';
const GUARDS = 'the triggers and constraints that guard the books are in place';
const LEASE = 'a payment under way is within its lease';
/** Broken and shown by test/ledger/tampering.proof.test.ts. */
const OF_BOOKS = new Set(
  [...purchaseInvariants, ...chargeInvariants, ...timeInvariants, ...guardInvariants].map(({ rule }) => rule),
);
const DENOMINATION = 'payments are of the network and asset that the database belongs to';
/** Broken and shown by test/jobs/audit.test.ts. */
const OF_JOBS = /^(a job's hold is pending while it lives|a job that has ended has no text)/;

const PAYER_ADDRESS = `0x${'a'.repeat(40)}`;
const HASH = `0x${'1'.repeat(64)}`;
const OTHER_ADDRESS = `0x${'b'.repeat(40)}`;
const payer = sql`(select id from account where address = ${PAYER_ADDRESS})`;
const other = sql`(select id from account where address = ${OTHER_ADDRESS})`;
const spend = (nonce: string) => sql`kind = 'spend' and reference = ${nonce} and debit_account_id = ${payer}`;
const payment = (identifier: string) => sql`(select id::text from x402_payment where identifier = ${identifier})`;

/** Each corruption, and the rules that have to notice it. */
const CORRUPTIONS: [string, (cardAccount: string) => RawBuilder<unknown>[], string[]][] = [
  [
    'money that is made up on a card account',
    (account) => [sql`update account set balance_micro_usd = balance_micro_usd + 1 where id = ${account}`],
    [CARD_TOTAL, OWN_TRANSFERS],
  ],
  [
    'money that moves between two card accounts without a transfer',
    (account) => [
      sql`
      with thief as (insert into account (kind, balance_micro_usd) values ('card', 7))
      update account set balance_micro_usd = balance_micro_usd - 7 where id = ${account}`,
    ],
    [OWN_TRANSFERS],
  ],
  ['a charge that is lost', () => [sql`delete from transfer where kind = 'charge'`], [CARD_TOTAL, OWN_TRANSFERS]],
  [
    'a transfer of nobody',
    () => [
      sql`
      insert into transfer (kind, state, debit_account_id, credit_account_id, amount_micro_usd, ended_at)
      values ('charge', 'voided', ${randomUUID()}, ${contra.cardRevenue}, 1, now())`,
    ],
    [STRAY],
  ],
  [
    'a top-up without its transfer',
    () => [sql`delete from transfer where kind = 'top_up'`],
    [CARD_TOTAL, OWN_TRANSFERS, SESSION],
  ],
  [
    'a spend that is booked as card revenue',
    () => [sql`update transfer set credit_account_id = ${contra.cardRevenue} where kind = 'spend'`],
    [SIDES, REVERSAL],
  ],
  [
    'a database that is given to another network',
    () => [
      sql`alter table instance disable trigger instance_keeps_network`,
      sql`update instance set network = 'eip155:1'`,
    ],
    [DENOMINATION],
  ],
  [
    'a deposit that is taken from card money',
    () => [sql`update transfer set debit_account_id = ${contra.cardClearing} where kind = 'deposit'`],
    [SIDES],
  ],
  ['a top-up of another amount', () => [sql`update top_up set amount_cents = amount_cents + 1`], [SESSION]],
  ['a transfer without its top-up', () => [sql`update top_up set state = 'open', credited_at = null`], [SESSION]],
  [
    'a hold whose lease has passed long ago',
    () => [sql`update transfer set lease_until = now() - interval '1 hour' where kind = 'charge'`],
    [HOLD],
  ],
  ['revenue that is lost', () => [sql`delete from transfer where kind = 'settlement'`], [SETTLEMENT]],
  [
    'revenue of another amount than was paid',
    () => [sql`update transfer set amount_micro_usd = 197 where kind = 'settlement'`],
    [SETTLEMENT],
  ],
  ['revenue of a payment that is not settled', () => [unsettle('speech')], [SETTLEMENT]],
  ['revenue of no payment', () => [sql`delete from x402_payment where identifier = 'speech'`], [SETTLEMENT]],
  [
    'one transfer on the chain for two payments',
    () => [
      sql`
      alter table x402_payment drop constraint x402_payment_network_transaction_hash_log_index_key`,
      sql`      update x402_payment set transaction_hash = ${HASH}, log_index = 0 where identifier = 'deposit'`,
    ],
    [CHAIN, GUARDS],
  ],
  [
    'a payment whose process died long ago',
    () => [
      sql`
      update x402_payment set state = 'settling', lease_until = now() - interval '1 hour' where identifier = 'unknown'`,
    ],
    [LEASE],
  ],

  [
    'money that is made up in a wallet',
    () => [sql`update account set balance_micro_usd = balance_micro_usd + 1 where id = ${payer}`],
    [OWN_TRANSFERS, WALLET_TOTAL],
  ],
  [
    'money that moves between two wallets without a transfer',
    () => [
      sql`
      update account set balance_micro_usd = balance_micro_usd + case id when ${payer} then -7 else 7 end
      where kind = 'wallet'`,
    ],
    [OWN_TRANSFERS],
  ],
  [
    'a wallet that is overdrawn',
    () => [
      sql`alter table account drop constraint account_balance_micro_usd_check`,
      sql`update account set balance_micro_usd = balance_micro_usd - 2000 where id = ${payer}`,
      sql`insert into prepaid_nonce (account_id, nonce) values (${payer}, 'overdraft')`,
      sql`
        insert into transfer (kind, state, debit_account_id, credit_account_id, amount_micro_usd, reference, ended_at)
        values ('spend', 'posted', ${payer}, ${contra.prepaidRevenue}, 2000, 'overdraft', now())`,
    ],
    [NEGATIVE, GUARDS],
  ],
  [
    'a spend that was given back and posted',
    () => [sql`update transfer set state = 'posted' where ${spend('voided')}`],
    [OWN_TRANSFERS, WALLET_TOTAL],
  ],
  [
    'a spend that was taken and voided',
    () => [sql`update transfer set state = 'voided' where ${spend('posted')}`],
    [OWN_TRANSFERS, WALLET_TOTAL],
  ],
  [
    'a spend of a dead process that nobody gives back',
    () => [sql`update transfer set lease_until = now() - interval '1 hour' where ${spend('pending')}`],
    [HOLD],
  ],
  [
    'a spend that pays another wallet',
    () => [sql`update transfer set credit_account_id = ${other} where ${spend('posted')}`],
    [OWN_TRANSFERS, SIDES],
  ],
  [
    'a spend that a card account pays',
    (account) => [
      sql`
      update account set balance_micro_usd = balance_micro_usd + case kind when 'card' then -10 else 10 end
      where id in (${account}, ${payer})`,
      sql`      update transfer set debit_account_id = ${account} where ${spend('posted')}`,
    ],
    [CARD_TOTAL, SIDES, WALLET_TOTAL, NONCE],
  ],
  [
    'a debit that is lost, with its nonce spent',
    () => [
      sql`
      update account set balance_micro_usd = balance_micro_usd + 10 where id = ${payer}`,
      sql`      delete from transfer where ${spend('posted')}`,
    ],
    [NONCE],
  ],
  ['a nonce that is forgotten too early', () => [sql`delete from prepaid_nonce where nonce = 'posted'`], [NONCE]],
  [
    'a nonce of a failed spend that is free again',
    () => [sql`delete from prepaid_nonce where nonce = 'voided'`],
    [NONCE],
  ],
  [
    'a nonce that is spent without a debit',
    () => [sql`insert into prepaid_nonce (account_id, nonce) values (${payer}, 'another')`],
    [NONCE],
  ],
  [
    'a nonce that is spent in another wallet',
    () => [sql`update prepaid_nonce set account_id = ${other} where nonce = 'posted'`],
    [NONCE],
  ],
  [
    'two debits for one nonce',
    () => [
      sql`
      update account set balance_micro_usd = balance_micro_usd - 10 where id = ${payer}`,
      sql`      insert into transfer (kind, state, debit_account_id, credit_account_id, amount_micro_usd, reference, created_at,
                            ended_at)
      select kind, state, debit_account_id, credit_account_id, amount_micro_usd, reference,
             created_at + interval '1 microsecond', ended_at
      from transfer where ${spend('posted')}`,
    ],
    [NONCE],
  ],
  [
    'a deposit that is paid and not credited',
    () => [
      sql`
      update account set balance_micro_usd = balance_micro_usd - 500 where id = ${other}`,
      sql`      delete from transfer where reference = ${payment('other deposit')}`,
    ],
    [SETTLEMENT],
  ],
  [
    'a deposit that is credited twice',
    () => [
      sql`
      drop index transfer_deposit`,
      sql`      update account set balance_micro_usd = balance_micro_usd + 500 where id = ${other}`,
      sql`      insert into transfer (kind, state, debit_account_id, credit_account_id, amount_micro_usd, reference, created_at,
                            ended_at)
      select kind, state, debit_account_id, credit_account_id, amount_micro_usd, reference, created_at,
             ended_at
      from transfer where reference = ${payment('other deposit')}`,
    ],
    [SETTLEMENT, GUARDS],
  ],
  [
    'a deposit that is credited with more than was paid',
    () => [
      sql`
      update account set balance_micro_usd = balance_micro_usd + 1 where id = ${payer}`,
      sql`      update transfer set amount_micro_usd = amount_micro_usd + 1 where reference = ${payment('deposit')}`,
    ],
    [SETTLEMENT],
  ],
  [
    "a deposit that is credited to another account than its payer's",
    () => [
      sql`
      update account set balance_micro_usd = balance_micro_usd + case id when ${other} then -500 else 500 end
      where kind = 'wallet'`,
      sql`      update transfer set credit_account_id = ${payer} where reference = ${payment('other deposit')}`,
    ],
    [PAYER],
  ],
  [
    'a reversal of more than was charged',
    () => [
      sql`update account set balance_micro_usd = balance_micro_usd + 1 where id = ${payer}`,
      sql`update transfer set amount_micro_usd = amount_micro_usd + 1 where kind = 'reversal'`,
    ],
    [REVERSAL],
  ],
  [
    'a reversal for another wallet than was charged',
    () => [
      sql`
      update account set balance_micro_usd = balance_micro_usd + case id when ${other} then 40 else -40 end
      where kind = 'wallet'`,
      sql`update transfer set credit_account_id = ${other} where kind = 'reversal'`,
    ],
    [REVERSAL],
  ],
  [
    'two reversals of one charge',
    () => [
      sql`update account set balance_micro_usd = balance_micro_usd + 40 where id = ${payer}`,
      sql`
      insert into transfer (kind, state, debit_account_id, credit_account_id, amount_micro_usd, reference, ended_at)
      select kind, state, debit_account_id, credit_account_id, amount_micro_usd, reference, now()
      from transfer where kind = 'reversal'`,
    ],
    [REVERSAL],
  ],
  [
    'a reversal that is lost',
    () => [
      sql`update account set balance_micro_usd = balance_micro_usd - 40 where id = ${payer}`,
      sql`delete from transfer where kind = 'reversal'`,
    ],
    [REVERSAL],
  ],
  ['a reversal without a reason', () => [sql`delete from reversal`], [REVERSAL]],
  [
    'a reversal of a charge that was void',
    () => [
      sql`update account set balance_micro_usd = balance_micro_usd + 40 where id = ${payer}`,
      sql`update transfer set state = 'voided' where ${spend('reversed')}`,
    ],
    [REVERSAL],
  ],
  [
    'a reversal from card money to a wallet',
    () => [sql`update transfer set debit_account_id = ${contra.cardRevenue} where kind = 'reversal'`],
    [CARD_TOTAL, SIDES, WALLET_TOTAL, REVERSAL],
  ],
  ['a deposit that is not settled', () => [unsettle('deposit')], [SETTLEMENT]],
  ['a deposit without a payment', () => [sql`delete from x402_payment where identifier = 'deposit'`], [SETTLEMENT]],
  [
    'a payment for speech that is credited to a wallet',
    () => [sql`update x402_payment set purpose = 'speech' where identifier = 'deposit'`],
    [SETTLEMENT],
  ],
  [
    'a deposit that is booked as revenue',
    () => [
      sql`
      update account set balance_micro_usd = balance_micro_usd - 500 where id = ${other}`,
      sql`      update transfer set kind = 'settlement', credit_account_id = ${contra.usdcRevenue}
      where reference = ${payment('other deposit')}`,
    ],
    [SETTLEMENT],
  ],
];

/** The payment is back in the state of not being known to be settled. */
const unsettle = (identifier: string) => sql`
  update x402_payment set state = 'unknown', settled_at = null, transaction_hash = null, log_index = null,
    receipt = null
  where identifier = ${identifier}`;

/** A settled payment for speech, two settled deposits, and a payment whose end is unknown. */
async function addPayments(db: Database): Promise<void> {
  const rows: [identifier: string, purpose: string, payer: string, amount: number][] = [
    ['speech', 'speech', PAYER_ADDRESS, 198],
    ['deposit', 'deposit', PAYER_ADDRESS, 1000],
    ['other deposit', 'deposit', OTHER_ADDRESS, 500],
    ['unknown', 'speech', PAYER_ADDRESS, 198],
  ];
  for (const [index, [identifier, purpose, address, amount]] of rows.entries()) {
    await sql`
      insert into x402_payment (identifier, purpose, state, request_hash, network, asset, payer, nonce, pay_to,
                                amount_micro_usd, valid_before, head_block, settling_at)
      values (${identifier}, ${purpose}, 'unknown', '', 'eip155:8453', '0xa', ${address}, ${identifier}, '0xc',
              ${amount}, 0, 0, now())`.execute(db);
    if (identifier === 'unknown') continue;
    const { id } = await db
      .selectFrom('x402_payment')
      .select('id')
      .where('identifier', '=', identifier)
      .executeTakeFirstOrThrow();
    assert.deepEqual(await bookSettlement(db, id, { transaction: HASH, logIndex: index }, 'receipt'), {
      receipt: 'receipt',
      isNew: true,
    });
    assert.deepEqual(await bookSettlement(db, id, { transaction: `0x${'2'.repeat(64)}`, logIndex: index }, 'another'), {
      receipt: 'receipt',
      isNew: false,
    });
  }
}

/** A spend of each state: 10 are posted, 20 voided, 30 pending, 40 posted and reversed. */
async function addSpends(db: Database): Promise<void> {
  const expiry = BigInt(Math.floor(Date.now() / 1000) + 60);
  const place = async (nonce: string, amountMicroUsd: bigint) => {
    const terms = { address: PAYER_ADDRESS, nonce, expiry, amountMicroUsd, isPermitted: true };
    const result = await placeSpend(db, terms, 60);
    assert.ok(result.outcome === 'held');
    return result.hold;
  };
  assert.equal(await captureHold(db, await place('posted', 10n)), true);
  assert.equal(await voidHold(db, await place('voided', 20n)), 990n);
  await place('pending', 30n);
  const reversed = await place('reversed', 40n);
  assert.equal(await reverseCharge(db, reversed.id, 'process_died'), false, 'pending');
  assert.equal(await captureHold(db, reversed), true);
  const reversals = await Promise.all([1, 2, 3].map(() => reverseCharge(db, reversed.id, 'process_died')));
  assert.deepEqual(reversals.sort(), [false, false, true], 'once');
}

test('the audit holds on a sound ledger, and each rule can fail', async (t) => {
  const db = openDatabase((await testDatabase(t)).url, { maxConnections: 2 });
  t.teardown(() => db.destroy());
  const { accountId } = await creditTopUp(db, {
    topUpId: randomUUID(),
    sessionId: 'cs_test_1',
    accountId: randomUUID(),
    livemode: false,
    amountCents: 500,
    challengeId: null,
  });
  await addPayments(db);
  await addSpends(db);
  assert.equal((await placeHold(db, accountId, 100n, 60)).outcome, 'held');
  assert.deepEqual(await audit(db), []);

  const broken = new Set<string>();
  for (const [name, corrupt, rules] of CORRUPTIONS) {
    await t.test(name, async () => {
      const found = await rolledBack(db, async (trx) => {
        await unguarded(trx, async () => {
          for (const statement of corrupt(accountId)) await statement.execute(trx);
        });
        return brokenRules(trx);
      });
      assert.deepEqual(found, rules);
      for (const rule of found) broken.add(rule);
    });
  }
  await t.test('no rule was left out', async () => {
    const rules = invariants.map(({ rule }) => rule).filter((rule) => !OF_JOBS.test(rule) && !OF_BOOKS.has(rule));
    assert.deepEqual([...broken].filter((rule) => !OF_BOOKS.has(rule)).sort(), rules.sort());
  });
});

test('a nonce that is forgotten when its retention is over breaks no rule', async (t) => {
  const db = openDatabase((await testDatabase(t)).url, { maxConnections: 2 });
  t.teardown(() => db.destroy());
  await addPayments(db);
  await addSpends(db);
  await unguarded(db, async (trx) => {
    await sql`
      update transfer set created_at = created_at - interval '26 hours', ended_at = ended_at - interval '26 hours'`.execute(
      trx,
    );
    await sql`update prepaid_nonce set spent_at = spent_at - interval '26 hours'`.execute(trx);
  });
  assert.deepEqual(await audit(db), []);
  assert.equal(await pruneNonces(db), 4);
  assert.deepEqual(await audit(db), []);
});
