import { sql } from 'kysely';
import { pino } from 'pino';
import { test } from 'tap';
import { audit } from '../../src/ledger/audit.ts';
import { failStatements } from '../support/failing-statements.ts';
import { type Fault, faults } from '../support/faulty-checkout.ts';
import { runTurn, testRunner } from '../support/reconcile.ts';
import { lockRows } from '../support/row-lock.ts';
import { unguarded } from '../support/unguarded.ts';
import { age, credited, HOUR, open, purchase, setUp } from './open-purchases.ts';

test('a failing processor gets few calls and leaks nothing into the log', async (t) => {
  const { checkout, gateway } = await setUp(t);
  const sessions = await Promise.all(Array.from({ length: 6 }, () => open(gateway)));
  for (const session of sessions) await checkout.pay(session);
  let logged = '';
  const write = (line: string) => {
    logged += line;
  };
  const runner = testRunner(gateway, { log: pino({ level: 'trace' }, { write }) });
  for (const [name, fault] of Object.entries(faults)) {
    checkout.fault = fault;
    checkout.calls.length = 0;
    const results = await runner.turn();
    for (const result of results) {
      const outcome = ['top_ups', 'checkout_sweep', 'clawback_sweep'].includes(result.name) ? 'failed' : 'done';
      t.strictSame([result.outcome, result.count], [outcome, 0], `${name}: ${result.name}`);
    }
    // Three sessions, and the lists of sessions and of refunds; the SDK repeats a call once whose connection was closed.
    t.ok(checkout.calls.length <= 2 * (3 + 2), `${name}: ${checkout.calls.length} calls`);
  }
  t.equal((await gateway.call('/tts/models')).status, 200);
  t.equal((await gateway.call('/top-up/complete?session_id=cs_test_1')).status, 502);
  for (const secret of [checkout.secretKey, 'secret-of-the-processor', 'cs_test_']) {
    t.ok(!logged.includes(secret), secret);
  }
  t.match(logged, /the call to the card processor failed/);
  checkout.fault = () => false;
  t.equal(credited(await runner.turn()), 6);
  t.match(logged, /a reconciler that had failed works again/);
  t.strictSame(await audit(gateway.db), []);
});

test('a session for which the processor or the database always fails does not block others', async (t) => {
  const { checkout, gateway } = await setUp(t);
  const [bad = '', ...good] = [await open(gateway), await open(gateway), await open(gateway, { amount: '999' })];
  for (const session of good) await checkout.pay(session);
  const fault = faults['500 without a body'] as Fault;
  checkout.fault = (method, path, response) => path.endsWith(bad) && fault(method, path, response);
  const damaged = { table: 'transfer', on: 'insert', when: sql`new.amount_micro_usd = 9990000` } as const;
  await failStatements(gateway.db, { ...damaged, state: 'XX001' });
  const { outcome, count } = await runTurn(gateway, 'top_ups');
  t.strictSame([outcome, count], ['failed', 1]);
});

test('R16: an ended purchase is deleted after three weeks and still credited if paid', async (t) => {
  const { checkout, gateway } = await setUp(t);
  const [old, young, unpaid, paid] = [
    await open(gateway),
    await open(gateway),
    await open(gateway),
    await open(gateway),
  ];
  const ended = (session: string, seconds: number) =>
    sql`update top_up set state = 'expired', created_at = now() - make_interval(secs => ${seconds})
        where session_id = ${session}`.execute(gateway.db);
  await ended(old, 21 * 24 * HOUR + 1);
  await ended(young, 20 * 24 * HOUR);
  await age(gateway, unpaid, 22 * 24 * HOUR);
  await checkout.pay(paid);
  await runTurn(gateway, 'top_ups');
  await sql`update top_up set state = 'open' where session_id = ${unpaid}`.execute(gateway.db);
  await unguarded(gateway.db, (db) =>
    sql`update top_up set created_at = now() - interval '1 year' where session_id = ${paid}`.execute(db),
  );
  t.equal((await runTurn(gateway, 'unpaid_purchases')).count, 1);
  const left = await gateway.db.selectFrom('top_up').select('session_id').execute();
  t.strictSame(left.map(({ session_id }) => session_id).sort(), [young, unpaid, paid].sort());

  await checkout.pay(old);
  const back = () => gateway.call(`/top-up/complete?session_id=${old}`);
  const pages = await Promise.all([back(), back()]);
  t.strictSame(
    pages.map(({ status }) => status),
    [200, 200],
  );
  const { account_id, state } = await purchase(gateway, old);
  t.equal(state, 'credited');
  t.equal(await gateway.balance(account_id), 7_000_000n);
  t.equal((await runTurn(gateway, 'checkout_sweep')).count, 0);
  t.strictSame(await audit(gateway.db), []);
});

test('R16: a session paid while its purchase is deleted is credited', async (t) => {
  const { checkout, gateway } = await setUp(t);
  const session = await open(gateway);
  await checkout.pay(session);
  const lock = await lockRows(t, gateway.databaseUrl, sql`delete from top_up where session_id = ${session}`);
  const page = gateway.call(`/top-up/complete?session_id=${session}`);
  await lock.untilWaiting(1);
  await lock.release();
  t.equal((await page).status, 200);
  t.equal(await gateway.balance((await purchase(gateway, session)).account_id), 7_000_000n);
  t.strictSame(await audit(gateway.db), []);
});
