import assert from 'node:assert/strict';
import { sql } from 'kysely';
import { type Test, test } from 'tap';
import { audit } from '../../src/ledger/audit.ts';
import { placeCardHold } from '../../src/ledger/card-holds.ts';
import { captureHold, type Hold, voidExpiredHolds } from '../../src/ledger/hold.ts';
import type { TurnResult } from '../../src/reconcile/reconciler.ts';
import { type Gateway, startGateway } from '../support/gateway.ts';
import { unguarded } from '../support/unguarded.ts';
import { until } from '../support/until.ts';

const AMOUNT = 1000n;

async function hold(gateway: Gateway, account: string, leaseSeconds: number | null = 60): Promise<Hold> {
  const result = await placeCardHold(gateway.db, account, AMOUNT, leaseSeconds);
  assert.ok(result.outcome === 'held');
  return result.hold;
}

/** As if their processes had died long ago. */
const expire = (gateway: Gateway, holds: readonly Hold[]) =>
  unguarded(gateway.db, (db) =>
    db
      .updateTable('transfer')
      .set({ lease_until: sql`now() - interval '1 second'` })
      .where(
        'id',
        'in',
        holds.map(({ id }) => id),
      )
      .execute(),
  );

async function twoReplicas(t: Test): Promise<[Gateway, Gateway]> {
  const first = await startGateway(t);
  return [first, await startGateway(t, {}, { databaseUrl: first.databaseUrl })];
}

const voided = (results: TurnResult[]) => results.find((result) => result.name === 'expired_holds')?.count ?? 0;

test('an expired hold is voided once, by two replicas at the same moment', async (t) => {
  const [first, second] = await twoReplicas(t);
  const accounts = await Promise.all([500, 500, 500].map((cents) => first.fund(cents)));
  for (let round = 0; round < 5; round++) {
    const holds = await Promise.all(accounts.flatMap((account) => [hold(first, account), hold(second, account)]));
    await expire(first, holds);
    const turns = await Promise.all([first, second, first, second].map(({ app }) => app.reconcilers.turn()));
    assert.equal(
      turns.reduce((sum, results) => sum + voided(results), 0),
      holds.length,
    );
    for (const account of accounts) assert.equal(await first.balance(account), 5_000_000n);
  }
  assert.deepEqual(await audit(first.db), []);
});

test('also without the lock, holds of the same accounts are voided once and nobody waits for ever', async (t) => {
  const [first, second] = await twoReplicas(t);
  const accounts = await Promise.all(Array.from({ length: 8 }, () => first.fund(500)));
  for (let round = 0; round < 5; round++) {
    const holds = await Promise.all([...accounts, ...accounts].map((account) => hold(first, account)));
    await expire(first, holds);
    const counts = await Promise.all([first, second, first, second].map(({ db }) => voidExpiredHolds(db)));
    assert.equal(
      counts.reduce((sum, count) => sum + count, 0),
      holds.length,
    );
  }
  for (const account of accounts) assert.equal(await first.balance(account), 5_000_000n);
  assert.deepEqual(await audit(first.db), []);
});

test('a hold within its lease, one without a lease, and one that has ended are left alone', async (t) => {
  const gateway = await startGateway(t);
  const account = await gateway.fund(500);
  await hold(gateway, account);
  const ofJob = await hold(gateway, account, null);
  const captured = await hold(gateway, account);
  assert.equal(await captureHold(gateway.db, captured), true);
  await expire(gateway, [captured]);
  assert.equal(voided(await gateway.app.reconcilers.turn()), 0);
  assert.equal(await gateway.balance(account), 5_000_000n - 3n * AMOUNT);
  assert.equal(await captureHold(gateway.db, ofJob), true);
  assert.deepEqual(await audit(gateway.db), []);
});

test('capture and reconciler at the same moment: one of them ends the hold', async (t) => {
  const gateway = await startGateway(t);
  const account = await gateway.fund(500);
  const holds = await Promise.all(Array.from({ length: 40 }, () => hold(gateway, account)));
  await expire(gateway, holds);
  const [captures, results] = await Promise.all([
    Promise.all(holds.map((each) => captureHold(gateway.db, each))),
    gateway.app.reconcilers.turn(),
  ]);
  const captured = captures.filter(Boolean).length;
  assert.equal(captured + voided(results), holds.length);
  assert.equal(await gateway.balance(account), 5_000_000n - BigInt(captured) * AMOUNT);
  assert.deepEqual(await audit(gateway.db), []);
});

test('more holds than one statement voids are voided in one turn', async (t) => {
  const gateway = await startGateway(t);
  const account = await gateway.fund(500);
  const count = 2500;
  await sql`
    with debit as (
      update account set balance_micro_usd = balance_micro_usd - ${BigInt(count)} where id = ${account}
    )
    insert into transfer (kind, state, debit_account_id, credit_account_id, amount_micro_usd, lease_until)
    select 'charge', 'pending', ${account}, '00000000-0000-4000-8000-000000000002', 1, now() - interval '1 hour'
    from generate_series(1, ${count}::int)`.execute(gateway.db);
  const findings = await audit(gateway.db);
  assert.deepEqual(
    findings.map((finding) => finding.rule),
    ['a hold has ended, is within its lease, or is owned by a live job'],
  );
  assert.equal(voided(await gateway.app.reconcilers.turn()), count);
  assert.equal(await gateway.balance(account), 5_000_000n);
  assert.deepEqual(await audit(gateway.db), []);
});

test('a hold whose process died is given back by the interval, without anybody asking', async (t) => {
  const gateway = await startGateway(t, { RECONCILE_INTERVAL_MS: '100' });
  const account = await gateway.fund(500);
  await expire(gateway, [await hold(gateway, account)]);
  await until(async () => (await gateway.balance(account)) === 5_000_000n);
});
