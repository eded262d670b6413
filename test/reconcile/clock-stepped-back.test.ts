/** The database's clock has stepped back by an hour: what it wrote before lies that far ahead. */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { sql } from 'kysely';
import { type Test, test } from 'tap';
import { type Database, openDatabase } from '../../src/db/database.ts';
import { requeueLostMail } from '../../src/feedback/outbox.ts';
import { requeueLostJobs, takeOverJobs } from '../../src/jobs/take-over.ts';
import { placeCardHold } from '../../src/ledger/card-holds.ts';
import { voidExpiredHolds } from '../../src/ledger/hold.ts';
import { pendingHolds } from '../../src/ledger/pending-holds.ts';
import { withLease } from '../../src/reconcile/lease.ts';
import { beginPass, endPass } from '../../src/top-up/sweep-pass.ts';
import { paymentsInDoubt } from '../../src/x402/doubtful-count.ts';
import { PaymentOutcomes } from '../../src/x402/payment-outcomes.ts';
import { Reservations } from '../../src/x402/reservations.ts';
import { claimedByWorker, row, start } from '../jobs/claiming.ts';
import { testDatabase } from '../support/database.ts';
import { startGateway } from '../support/gateway.ts';
import { later } from '../support/jobs.ts';

const STEP = `interval '1 hour'`;
const ASSET = { network: 'eip155:8453', address: '0xA', name: 'USDC', version: '2' } as never;

async function database(t: Test): Promise<Database> {
  const db = openDatabase((await testDatabase(t)).url, { maxConnections: 2 });
  t.teardown(() => db.destroy());
  return db;
}

const run = (db: Database, statement: string) => sql.raw(statement).execute(db);

test("a reconciler's turn of then binds nobody, and neither does the time of its last one", async (t) => {
  const db = await database(t);
  const take = () => withLease(db, 'probe', 60_000, async () => 'taken');
  const held = (from: string) => `
    insert into reconciler (name, owner, started_at, lease_until)
    values ('probe', '${randomUUID()}', ${from}, ${from} + interval '10 seconds')
    on conflict (name) do update
      set owner = excluded.owner, started_at = excluded.started_at, lease_until = excluded.lease_until`;
  await run(db, held(`now() + ${STEP}`));
  assert.equal(await take(), 'taken');
  await run(db, `update reconciler set started_at = now() + ${STEP}`);
  assert.equal(await take(), 'taken', 'no gap is kept to a turn that has not begun');
  await run(db, held('now()'));
  assert.equal(await take(), undefined, 'one within its length binds');
});

test('a hold of then is voided, and one within its own length is kept, however long that is', async (t) => {
  const gateway = await startGateway(t);
  const account = await gateway.fund(500);
  const placed = await Promise.all([5, 600].map((lease) => placeCardHold(gateway.db, account, 1_000n, lease)));
  const [short, long] = placed.map((result) => (result.outcome === 'held' ? result.hold.id : undefined));
  await run(gateway.db, `update transfer set lease_until = lease_until + interval '20 seconds' where id = ${short}`);
  const { count, pastLease } = await pendingHolds(gateway.db);
  assert.deepEqual([count, pastLease], [2, 1]);
  assert.equal(await voidExpiredHolds(gateway.db), 1);
  assert.equal(await voidExpiredHolds(gateway.db), 0);
  await run(gateway.db, `update transfer set lease_until = lease_until + ${STEP} where id = ${long}`);
  assert.equal(await voidExpiredHolds(gateway.db), 1);
  assert.equal(await gateway.balance(account), 5_000_000n);
});

test("a payment's lease of then binds nobody, and the time of its last check keeps none from the next", async (t) => {
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
  assert.deepEqual([abandoned.map(({ claim }) => claim.nonce), abandoned[0]?.isLeased], [['reserved'], false]);
  assert.ok(await reservations.takeOver(abandoned[0] as never, 1n));
  assert.deepEqual(await reservations.findAbandoned(10), []);
  assert.equal((await paymentsInDoubt(db)).count, 2);
  const outcomes = new PaymentOutcomes(db, ASSET);
  const since = await outcomes.now();
  const claimed = [await outcomes.claimNextCheck(since), await outcomes.claimNextCheck(since)];
  assert.deepEqual(claimed.map((payment) => payment?.claim.nonce).sort(), ['settling', 'unknown']);
  assert.equal(await outcomes.claimNextCheck(since), undefined, 'each once');
});

test("a dead worker's jobs of then are taken over, and those that wait become due", async (t) => {
  const { gateway, account } = await start(t);
  const [taken, waiting] = [(await later(gateway, account)).json.jobId, (await later(gateway, account)).json.jobId];
  await claimedByWorker(gateway, taken, 0);
  assert.equal(await takeOverJobs(gateway.db), 0, 'a worker that lives');
  await run(gateway.db, `update worker set heartbeat_at = now() + ${STEP}`);
  assert.equal(await takeOverJobs(gateway.db), 1);
  assert.equal((await row(gateway, taken)).state, 'queued');

  await run(gateway.db, `update job set run_at = now() + ${STEP} where id = '${waiting}'`);
  await run(gateway.db, `update graphile_worker._private_jobs set run_at = now() + ${STEP} where key = '${waiting}'`);
  await requeueLostJobs(gateway.db);
  const { rows } = await sql`
    select from graphile_worker.jobs where key = ${waiting} and run_at <= now()`.execute(gateway.db);
  assert.equal(rows.length, 1);
  assert.ok((await row(gateway, waiting)).run_at.getTime() <= Date.now() + 1_000);
});

test('feedback whose mail a dead process took then is mailed', async (t) => {
  const db = await database(t);
  const { rows } = await sql<{ id: string }>`
    insert into feedback (nonce, wallet, category, message, signing_message, signature, trace_id, received_at, notification)
    values (gen_random_uuid(), ${`0x${'a'.repeat(40)}`}, 'bug', 'Hello', '', '', gen_random_uuid(), now(), 'queued')
    returning id`.execute(db);
  const [feedback] = rows;
  assert.equal(await requeueLostMail(db), 1);
  const lock = (at: string) =>
    run(
      db,
      `update graphile_worker._private_jobs set locked_at = ${at}, locked_by = 'dead'
       where key = 'feedback ${feedback?.id}'`,
    );
  await lock('now()');
  assert.equal(await requeueLostMail(db), 0);
  await lock(`now() + ${STEP}`);
  assert.equal(await requeueLostMail(db), 1);
});

test("how far the processor's lists were read then ends no pass with an error", async (t) => {
  const db = await database(t);
  await run(db, `alter table processor_list disable trigger processor_list_read`);
  await run(db, `update processor_list set read_until = now() + ${STEP}, pass_started_at = now() + 2 * ${STEP}`);
  await run(db, `alter table processor_list enable trigger processor_list_read`);
  for (const name of ['sessions', 'refunds', 'disputes'] as const) {
    const pass = await beginPass(db, name);
    assert.ok(pass.created_from <= Date.now() / 1000 - 3_600 + 1, 'the last hour is read again');
    await endPass(db, pass);
  }
  const { rows } = await sql`select from processor_list where pass_started_at is null and read_until < now()`.execute(
    db,
  );
  assert.equal(rows.length, 3);
});
