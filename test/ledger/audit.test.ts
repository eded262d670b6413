import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { sql } from 'kysely';
import { test } from 'tap';
import { type Database, openDatabase } from '../../src/db/database.ts';
import { audit, invariants } from '../../src/ledger/audit.ts';
import { placeCardHold } from '../../src/ledger/card-holds.ts';
import { findDebt } from '../../src/ledger/debts.ts';
import { captureHold, voidHold } from '../../src/ledger/hold.ts';
import { reverseCharge } from '../../src/ledger/reversal.ts';
import { placeWalletHold } from '../../src/ledger/wallet-holds.ts';
import { pruneNonces } from '../../src/ledger/wallets.ts';
import { Clawbacks } from '../../src/top-up/clawbacks.ts';
import { creditTopUp } from '../../src/top-up/credit-top-up.ts';
import { Processor } from '../../src/top-up/processor.ts';
import { Purchases } from '../../src/top-up/purchases.ts';
import { bookSettlement } from '../../src/x402/book-settlement.ts';
import { HASH, OF_BOOKS, OF_JOBS, OTHER_ADDRESS, PAYER_ADDRESS } from '../support/audit-rules.ts';
import { CORRUPTIONS_OF_BALANCES } from '../support/corruptions-of-balances.ts';
import { CORRUPTIONS_OF_CLAWBACKS } from '../support/corruptions-of-clawbacks.ts';
import { CORRUPTIONS_OF_PAYMENTS } from '../support/corruptions-of-payments.ts';
import { testDatabase } from '../support/database.ts';
import { brokenRules, rolledBack } from '../support/rolled-back.ts';
import { unguarded } from '../support/unguarded.ts';

/** The payment is back in the state of not being known to be settled. */

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
    const result = await placeWalletHold(db, terms, 60);
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

/** An account that got 500 cents, and of which 100 were refunded and 800 are disputed: it owes 400. */
async function addClawbacks(db: Database): Promise<void> {
  const purchase = { topUpId: randomUUID(), sessionId: 'cs_test_2', accountId: randomUUID(), paymentIntentId: 'pi_1' };
  await creditTopUp(db, { ...purchase, livemode: false, amountCents: 500, challengeId: null });
  const processor = new Processor('sk_test_none', 'http://127.0.0.1:9');
  const purchases = new Purchases(db, processor, { baseUrl: 'http://127.0.0.1', serviceName: 'Speechgate' });
  const clawbacks = new Clawbacks(db, processor, purchases);
  const told = {
    paymentIntentId: 'pi_1',
    chargeId: 'ch_1',
    currency: 'usd',
    created: Math.floor(Date.now() / 1000),
    isWithdrawn: true,
  };
  const refund = { ...told, id: 're_1', kind: 'refund', amountCents: 100, status: 'succeeded' } as const;
  const dispute = { ...told, id: 'dp_1', kind: 'dispute', amountCents: 800, status: 'needs_response' } as const;
  assert.equal((await clawbacks.record(refund)).hasMoved, true);
  assert.deepEqual(
    await Promise.all([1, 2, 3].map(async () => (await clawbacks.record(dispute)).hasMoved)).then((all) => all.sort()),
    [...[false, false, true]],
  );
  assert.equal(await findDebt(db, purchase.accountId), 4_000_000n);
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
  await addClawbacks(db);
  assert.equal((await placeCardHold(db, accountId, 100n, 60)).outcome, 'held');
  assert.deepEqual(await audit(db), []);

  const broken = new Set<string>();
  for (const [name, corrupt, rules] of [
    ...CORRUPTIONS_OF_BALANCES,
    ...CORRUPTIONS_OF_PAYMENTS,
    ...CORRUPTIONS_OF_CLAWBACKS,
  ]) {
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
