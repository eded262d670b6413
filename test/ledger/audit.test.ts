import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { sql } from 'kysely';
import { type Test, test } from 'tap';
import { type Database, openDatabase } from '../../src/db/database.ts';
import { readSqlFiles } from '../../src/db/sql-files.ts';
import { audit } from '../../src/ledger/audit.ts';
import { findDebt } from '../../src/ledger/debts.ts';
import { captureHold, voidHold } from '../../src/ledger/hold.ts';
import { newestSealable, parseSeal, sealUpTo } from '../../src/ledger/seal.ts';
import { contra } from '../../src/ledger/transfer.ts';
import { NONCE_RETENTION_HOURS, pruneNonces } from '../../src/ledger/wallet-holds.ts';
import { Clawbacks } from '../../src/payments/top-up/clawbacks.ts';
import { creditTopUp } from '../../src/payments/top-up/credit-top-up.ts';
import { Processor } from '../../src/payments/top-up/processor.ts';
import { Purchases } from '../../src/payments/top-up/purchases.ts';
import { bookSettlement } from '../../src/payments/x402/book-settlement.ts';
import { HASH, invariants, OF_BOOKS, OF_JOBS, OTHER_ADDRESS, PAYER_ADDRESS } from '../support/audit-rules.ts';
import { CORRUPTIONS } from '../support/corruptions.ts';
import { testDatabase } from '../support/database.ts';
import { holdOnCard, holdOnWallet } from '../support/holds.ts';
import { brokenRules, rolledBack } from '../support/rolled-back.ts';
import { unguarded } from '../support/unguarded.ts';

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

/** A spend of each state: 10 are posted, 20 voided, 30 pending. */
async function addSpends(db: Database): Promise<void> {
  const expiry = BigInt(Math.floor(Date.now() / 1000) + 60);
  const place = async (nonce: string, amountMicroUsd: bigint) => {
    const terms = { address: PAYER_ADDRESS, nonce, expiry, amountMicroUsd, isWithinMaximum: true };
    const result = await holdOnWallet(db, terms);
    assert.ok(result.outcome === 'placed');
    return result.hold;
  };
  assert.equal(await captureHold(db, await place('posted', 10n)), true);
  const voided = await voidHold(db, await place('voided', 20n));
  assert.deepEqual(voided, { isVoided: true, isCharged: false, balanceMicroUsd: 990n });
  await place('pending', 30n);
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

test('the audit passes on a sound ledger, and each rule can fail', async (t) => {
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
  t.equal((await holdOnCard(db, accountId, 100n)).outcome, 'placed');
  t.strictSame(await audit(db), []);

  const broken = new Set<string>();
  for (const [name, corrupt, rules] of CORRUPTIONS) {
    await t.test(name, async (t) => {
      const found = await rolledBack(db, async (trx) => {
        await unguarded(trx, async () => {
          for (const statement of corrupt(accountId)) await statement.execute(trx);
        });
        return brokenRules(trx);
      });
      t.strictSame(found, rules);
      for (const rule of found) broken.add(rule);
    });
  }
  await t.test('every audit rule was broken', async (t) => {
    const rules = invariants.map(({ rule }) => rule).filter((rule) => !OF_JOBS.test(rule) && !OF_BOOKS.has(rule));
    t.strictSame([...broken].filter((rule) => !OF_BOOKS.has(rule)).sort(), rules.sort());
  });
});

test('the audit names the contra accounts and the retention of nonces as the service does', async (t) => {
  const files = new Map((await readSqlFiles('audit')).map(({ name, text }) => [name, text]));
  const snakeCase = (name: string) => name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
  t.strictSame(
    files.get('902_contra_accounts')?.match(/(?<=')0{8}-.+(?=')/g),
    Object.entries(contra).map(([name, id]) => `${id} ${snakeCase(name)}`),
  );
  t.ok(files.get('101_card_balances')?.includes(`when '${contra.cardAdjustments}' then`));
  t.ok(files.get('107_spent_nonces')?.includes(`interval '${NONCE_RETENTION_HOURS} hours'`));
});

test('a nonce pruned after its retention breaks no rule', async (t) => {
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
  t.strictSame(await audit(db), []);
  t.equal(await pruneNonces(db), 3);
  t.strictSame(await audit(db), []);
});

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
  const held = await holdOnCard(db, accountId, 100n);
  assert.ok(held.outcome === 'placed');
  return held.hold;
}

const positionOf = async (db: Database, { id }: { readonly id: string }): Promise<bigint> =>
  (await db.selectFrom('transfer').select('position').where('id', '=', id).executeTakeFirstOrThrow()).position;

test('a seal ends before the first pending hold and before recent transfers', async (t) => {
  const { db, accountId } = await start(t);
  t.equal(await newestSealable(db), undefined, 'a transfer of this moment');
  t.equal(await newestSealable(db, 0), 1n);
  const [first, second] = [await hold(db, accountId), await hold(db, accountId)];
  await captureHold(db, second);
  t.equal(await newestSealable(db, 0), 1n);
  await captureHold(db, first);
  t.equal(await newestSealable(db, 0), await positionOf(db, second));
});

test('a seal is stable while transfers are added and reveals any change to old ones', async (t) => {
  const { db, accountId } = await start(t);
  const earlier = await hold(db, accountId);
  await captureHold(db, earlier);
  const seal = await sealUpTo(db, await positionOf(db, earlier));
  const later = await hold(db, accountId);
  t.strictSame(await sealUpTo(db, seal.upTo), seal);
  t.not((await sealUpTo(db, await positionOf(db, later))).hash, seal.hash);

  const columns = [
    ...['id', 'kind', 'state', 'debit_account_id', 'credit_account_id', 'amount_micro_usd', 'reference', 'created_at'],
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
    const where = column === 'reference' ? 'position = 1' : 'position = 2';
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
  await unguarded(db, (trx) => sql`delete from transfer where position = 1`.execute(trx));
  t.not((await sealUpTo(db, seal.upTo)).hash, seal.hash, 'one is missing');
});

test('a seal over many steps and gaps does not depend on later transfers', async (t) => {
  const { db, accountId } = await start(t);
  const insert = (count: number) => sql`
    insert into transfer (kind, state, debit_account_id, credit_account_id, amount_micro_usd)
    select 'charge', 'pending', ${accountId}, ${contra.cardRevenue}, 1 from generate_series(1, ${count}::int)`;
  await insert(15_000).execute(db);
  await sql`select setval(pg_get_serial_sequence('transfer', 'position'), 52000)`.execute(db);
  await insert(15_000).execute(db);
  const steps: bigint[] = [];
  const seal = await sealUpTo(db, 60_500n, (position) => steps.push(position));
  t.strictSame(steps, [9_999n, 19_999n, 29_999n, 39_999n, 49_999n, 59_999n, 60_500n]);
  await insert(10).execute(db);
  t.strictSame(await sealUpTo(db, 60_500n), seal);
  await unguarded(db, (trx) => sql`update transfer set amount_micro_usd = 2 where position = 12345`.execute(trx));
  t.not((await sealUpTo(db, 60_500n)).hash, seal.hash);
});

test('a printed seal can be parsed', async (t) => {
  const hash = 'ab'.repeat(32);
  t.strictSame(parseSeal(`12:${hash}`), { upTo: 12n, hash });
  t.strictSame(parseSeal(` 12 ${hash.toUpperCase()}\n`), { upTo: 12n, hash });
  for (const text of ['', '12', hash, `12:${hash}0`, `-1:${hash}`, `12:${hash.slice(1)}`]) {
    t.equal(parseSeal(text), undefined, text);
  }
});
