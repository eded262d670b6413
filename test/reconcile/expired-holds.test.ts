import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { sql } from 'kysely';
import { type Test, test } from 'tap';
import { type Database, openDatabase } from '../../src/db/database.ts';
import { requeueLostMail } from '../../src/feedback/outbox.ts';
import { requeueLostJobs, takeOverJobs } from '../../src/jobs/take-over.ts';
import { audit } from '../../src/ledger/audit.ts';
import { captureHold, type HoldRecord, pendingHolds, renewHolds, voidExpiredHolds } from '../../src/ledger/hold.ts';
import { beginPass, endPass } from '../../src/payments/top-up/sweep-pass.ts';
import { PaymentStates, paymentsInDoubt } from '../../src/payments/x402/payment-states.ts';
import { Reservations } from '../../src/payments/x402/reservations.ts';
import { expiredHolds } from '../../src/reconcile/old-rows.ts';
import type { TurnResult } from '../../src/reconcile/reconciler.ts';
import { TurnLeases } from '../../src/reconcile/runner.ts';
import { claimed, row, start } from '../jobs/claiming.ts';
import { testDatabase } from '../support/database.ts';
import { type Gateway, startGateway } from '../support/gateway.ts';
import { HOLD_LEASE_SECONDS, holdOnCard } from '../support/holds.ts';
import { later } from '../support/jobs.ts';
import { unguarded } from '../support/unguarded.ts';

const AMOUNT = 1000n;

async function hold(
  gateway: Gateway,
  account: string,
  leaseSeconds: number | null = HOLD_LEASE_SECONDS,
): Promise<HoldRecord> {
  const result = await holdOnCard(gateway.db, account, AMOUNT, leaseSeconds);
  assert.ok(result.outcome === 'placed');
  return result.hold;
}

/** As if their processes had died long ago. */
const expire = (gateway: Gateway, holds: readonly HoldRecord[]) =>
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

test('even without the lock, concurrent voids happen once and without deadlock', async (t) => {
  const [first, second] = await twoReplicas(t);
  const accounts = await Promise.all(Array.from({ length: 8 }, () => first.fund(500)));
  for (let round = 0; round < 5; round++) {
    const holds = await Promise.all([...accounts, ...accounts].map((account) => hold(first, account)));
    await expire(first, holds);
    const counts = await Promise.all([first, second, first, second].map(({ db }) => voidExpiredHolds(db)));
    t.equal(
      counts.reduce((sum, count) => sum + count, 0),
      holds.length,
    );
  }
  for (const account of accounts) t.equal(await first.balance(account), 5_000_000n);
  t.strictSame(await audit(first.db), []);
});

test('a hold with a live lease, without lease or already ended is left alone', async (t) => {
  const gateway = await startGateway(t);
  const account = await gateway.fund(500);
  await hold(gateway, account);
  const ofJob = await hold(gateway, account, null);
  const captured = await hold(gateway, account);
  t.equal(await captureHold(gateway.db, captured), true);
  await expire(gateway, [captured]);
  t.equal(voided(await gateway.app.reconcilers.turn()), 0);
  t.equal(await gateway.balance(account), 5_000_000n - 3n * AMOUNT);
  t.equal(await captureHold(gateway.db, ofJob), true);
  t.strictSame(await audit(gateway.db), []);
});

test('a renewed hold stays, and a hold taken over or ended is not renewed', async (t) => {
  const gateway = await startGateway(t);
  const account = await gateway.fund(500);
  const [live, captured, voided] = [
    await hold(gateway, account),
    await hold(gateway, account),
    await hold(gateway, account),
  ];
  await captureHold(gateway.db, captured);
  await expire(gateway, [live, voided]);
  const taken = { ...live, fence: live.fence - 1 };
  t.strictSame([...(await renewHolds(gateway.db, [taken, captured], HOLD_LEASE_SECONDS))], []);
  t.strictSame([...(await renewHolds(gateway.db, [live], HOLD_LEASE_SECONDS))], [live.id]);
  t.equal(await voidExpiredHolds(gateway.db), 1);
  t.strictSame([...(await renewHolds(gateway.db, [voided], HOLD_LEASE_SECONDS))], []);
  t.equal(await captureHold(gateway.db, voided), false, 'its answer is not charged');
  t.equal(await captureHold(gateway.db, live), true);
  t.equal(await gateway.balance(account), 5_000_000n - 2n * AMOUNT);
  t.strictSame(await audit(gateway.db), []);
});

test('for one lease after a pause nothing is voided (R55)', async (t) => {
  const gateway = await startGateway(t);
  const account = await gateway.fund(500);
  await expire(gateway, [await hold(gateway, account)]);
  let count = 0;
  const done = (more: number) => {
    count += more;
  };
  const turn = { signal: new AbortController().signal, done, report: () => {} };
  const { run } = expiredHolds(gateway.db, HOLD_LEASE_SECONDS);
  await run({ ...turn, steadyMs: HOLD_LEASE_SECONDS * 1000 - 1 });
  t.equal(count, 0);
  await run({ ...turn, steadyMs: HOLD_LEASE_SECONDS * 1000 });
  t.equal(count, 1);
  t.equal(await gateway.balance(account), 5_000_000n);
});

test('one turn voids more holds than one statement can', async (t) => {
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
  t.strictSame(
    findings.map((finding) => finding.rule),
    ['each pending hold has an unexpired lease or an unfinished job'],
  );
  t.equal(voided(await gateway.app.reconcilers.turn()), count);
  t.equal(await gateway.balance(account), 5_000_000n);
  t.strictSame(await audit(gateway.db), []);
});

// The database's clock has stepped back by an hour: what it wrote before lies that far ahead.

const STEP = `interval '1 hour'`;
const ASSET = { network: 'eip155:8453', address: '0xA', name: 'USDC', version: '2' } as never;

async function database(t: Test): Promise<Database> {
  const db = openDatabase((await testDatabase(t)).url, { maxConnections: 2 });
  t.teardown(() => db.destroy());
  return db;
}

const run = (db: Database, statement: string) => sql.raw(statement).execute(db);

test("after the clock steps back, a reconciler's lease and last turn do not bind", async (t) => {
  const db = await database(t);
  const take = () => new TurnLeases(db).run('probe', 60_000, async () => 'taken');
  const held = (from: string) => `
    insert into reconciler (name, owner, started_at, lease_until)
    values ('probe', '${randomUUID()}', ${from}, ${from} + interval '10 seconds')
    on conflict (name) do update
      set owner = excluded.owner, started_at = excluded.started_at, lease_until = excluded.lease_until`;
  await run(db, held(`now() + ${STEP}`));
  t.equal(await take(), 'taken');
  await run(db, `update reconciler set started_at = now() + ${STEP}`);
  t.equal(await take(), 'taken', 'no gap is kept to a turn that has not begun');
  await run(db, held('now()'));
  t.equal(await take(), undefined, 'one within its length binds');
});

test('after the clock steps back, a hold with a lease too far ahead is voided', async (t) => {
  const gateway = await startGateway(t);
  const account = await gateway.fund(500);
  const held = async () => {
    const placed = await holdOnCard(gateway.db, account, 1_000n);
    assert.ok(placed.outcome === 'placed');
    return placed.hold.id;
  };
  const [stale, live] = [await held(), await held()];
  await run(gateway.db, `update transfer set lease_until = lease_until + interval '600 seconds' where id = '${stale}'`);
  const { count, pastLease } = await pendingHolds(gateway.db);
  t.strictSame([count, pastLease], [2, 1]);
  t.equal(await voidExpiredHolds(gateway.db), 1);
  t.equal(await voidExpiredHolds(gateway.db), 0);
  await run(gateway.db, `update transfer set lease_until = lease_until + ${STEP} where id = '${live}'`);
  t.equal(await voidExpiredHolds(gateway.db), 1);
  t.equal(await gateway.balance(account), 5_000_000n);
});

test("after the clock steps back, a payment's lease and last check do not bind", async (t) => {
  const db = await database(t);
  const pay = (identifier: string, state: string, columns: string, values: string) =>
    run(
      db,
      `insert into x402_payment (state, identifier, request_hash, network, asset, payer, nonce, pay_to, amount_micro_usd,
                                 valid_before, head_block, ${columns})
       values ('${state}', '${identifier}', '', 'eip155:8453', '0xa', '0xb', '${identifier}', '0xc', 1, 1, 1, ${values})`,
    );
  const ahead = `now() + ${STEP}`;
  await pay('reserved', 'reserved', 'lease_until', ahead);
  await pay('live', 'reserved', 'lease_until', `now() + interval '5 seconds'`);
  await pay('settling', 'settling', 'lease_until, settling_at', `${ahead}, now()`);
  await pay('unknown', 'unknown', 'settling_at', 'now()');
  // As no statement may write it, the clock being what it is.
  await run(db, `alter table x402_payment disable trigger x402_payment_lease`);
  await run(db, `update x402_payment set checked_at = ${ahead} where identifier = 'unknown'`);
  await run(db, `alter table x402_payment enable trigger x402_payment_lease`);

  const reservations = new Reservations(db, ASSET);
  const abandoned = await reservations.findAbandoned(10);
  t.strictSame([abandoned.map(({ claim }) => claim.nonce), abandoned[0]?.isLeased], [['reserved'], false]);
  t.ok(await reservations.takeOver(abandoned[0] as never, 1n));
  t.strictSame(await reservations.findAbandoned(10), []);
  t.equal((await paymentsInDoubt(db)).count, 2);
  const states = new PaymentStates(db, ASSET);
  const since = await states.now();
  const claimed = [await states.claimNextCheck(since), await states.claimNextCheck(since)];
  t.strictSame(claimed.map((payment) => payment?.claim.nonce).sort(), ['settling', 'unknown']);
  t.equal(await states.claimNextCheck(since), undefined, 'each once');
});

test("after the clock steps back, a job's lease ends and waiting jobs become due", async (t) => {
  const { gateway, account } = await start(t);
  const [taken, waiting] = [(await later(gateway, account)).json.jobId, (await later(gateway, account)).json.jobId];
  await claimed(gateway, taken);
  t.equal(await takeOverJobs(gateway.db), 0, 'a lease within its length binds');
  await run(gateway.db, `update job set lease_until = now() + ${STEP} where id = '${taken}'`);
  t.equal(await takeOverJobs(gateway.db), 1);
  t.equal((await row(gateway, taken)).state, 'queued');

  await run(gateway.db, `update job set run_at = now() + ${STEP} where id = '${waiting}'`);
  await run(gateway.db, `update graphile_worker._private_jobs set run_at = now() + ${STEP} where key = '${waiting}'`);
  await requeueLostJobs(gateway.db);
  const { rows } = await sql`
    select from graphile_worker.jobs where key = ${waiting} and run_at <= now()`.execute(gateway.db);
  t.equal(rows.length, 1);
  t.ok((await row(gateway, waiting)).run_at.getTime() <= Date.now() + 1_000);

  await run(gateway.db, `update job set run_at = now() - interval '11 seconds' where id = '${waiting}'`);
  const lock = (at: string) =>
    run(
      gateway.db,
      `update graphile_worker._private_jobs set locked_at = ${at}, locked_by = 'dead' where key = '${waiting}'`,
    );
  await lock('now()');
  t.equal(await requeueLostJobs(gateway.db), 0);
  await lock(`now() + ${STEP}`);
  t.equal(await requeueLostJobs(gateway.db), 1, 'an entry that was locked then');
});

test('after the clock steps back, mail taken by a dead process is sent', async (t) => {
  const db = await database(t);
  const { rows } = await sql<{ id: string }>`
    insert into feedback (nonce, wallet, category, message, signing_message, signature, trace_id, received_at, notification)
    values (gen_random_uuid(), ${`0x${'a'.repeat(40)}`}, 'bug', 'Hello', '', '', gen_random_uuid(), now(), 'queued')
    returning id`.execute(db);
  const [feedback] = rows;
  t.equal(await requeueLostMail(db), 1);
  const lock = (at: string) =>
    run(
      db,
      `update graphile_worker._private_jobs set locked_at = ${at}, locked_by = 'dead'
       where key = 'feedback ${feedback?.id}'`,
    );
  await lock('now()');
  t.equal(await requeueLostMail(db), 0);
  await lock(`now() + ${STEP}`);
  t.equal(await requeueLostMail(db), 1);
});

test("after the clock steps back, reading the processor's lists does not fail", async (t) => {
  const db = await database(t);
  await run(db, `alter table processor_list disable trigger processor_list_read`);
  await run(db, `update processor_list set read_until = now() + ${STEP}, pass_started_at = now() + 2 * ${STEP}`);
  await run(db, `alter table processor_list enable trigger processor_list_read`);
  for (const name of ['sessions', 'refunds', 'disputes'] as const) {
    const pass = await beginPass(db, name);
    t.ok(pass.created_from <= Date.now() / 1000 - 3_600 + 1, 'the last hour is read again');
    await endPass(db, pass);
  }
  const { rows } = await sql`select from processor_list where pass_started_at is null and read_until < now()`.execute(
    db,
  );
  t.equal(rows.length, 3);
});
