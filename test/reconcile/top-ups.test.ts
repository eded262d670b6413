import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { sql } from 'kysely';
import { pino } from 'pino';
import { test } from 'tap';
import { openDatabase } from '../../src/db/database.ts';
import { audit } from '../../src/ledger/audit.ts';
import { catchUp } from '../../src/reconcile/catch-up.ts';
import { runPass } from '../../src/reconcile/processor-pass.ts';
import { TurnLeases } from '../../src/reconcile/runner.ts';
import { testDatabase } from '../support/database.ts';
import { failStatements } from '../support/failing-statements.ts';
import {
  answerWith,
  type Fault,
  type FaultyCheckout,
  faults,
  startFaultyCheckout,
  storedSession,
} from '../support/faulty-checkout.ts';
import { startGateway } from '../support/gateway.ts';
import { runTurn, testRunner } from '../support/reconcile.ts';
import { lockRows } from '../support/row-lock.ts';
import { unguarded } from '../support/unguarded.ts';
import { until } from '../support/until.ts';
import { age, credited, HOUR, open, purchase, settings, setUp } from './open-purchases.ts';

const retrieves = (checkout: FaultyCheckout, session = '') =>
  checkout.calls.filter(({ method, path }) => method === 'GET' && path.startsWith(`/v1/checkout/sessions/${session}`));

test("R16: a paid session is credited in the next turn, without the buyer's return", async (t) => {
  const { checkout, gateway } = await setUp(t);
  const session = await open(gateway);
  t.equal((await runTurn(gateway, 'top_ups')).count, 0);
  await checkout.pay(session);
  t.equal((await runTurn(gateway, 'top_ups')).count, 1);
  const { account_id, state } = await purchase(gateway, session);
  t.equal(state, 'credited');
  t.equal(await gateway.balance(account_id), 7_000_000n);

  const page = await gateway.call(`/top-up/complete?session_id=${session}`);
  t.equal(page.status, 200);
  t.match(page.text, /already/i);
  t.equal(await gateway.balance(account_id), 7_000_000n);
  const before = retrieves(checkout, session).length;
  t.equal((await runTurn(gateway, 'top_ups')).count, 0);
  t.equal(retrieves(checkout, session).length, before, 'what is credited is not asked for again');
  t.strictSame(await audit(gateway.db), []);
});

test('R16: concurrent returns of the buyer and reconcilers credit once', async (t) => {
  const { checkout, gateway } = await setUp(t);
  const replica = await startGateway(t, settings(checkout), { databaseUrl: gateway.databaseUrl });
  for (let round = 0; round < 8; round++) {
    const session = await open(gateway);
    await checkout.pay(session);
    const back = () => gateway.call(`/top-up/complete?session_id=${session}`);
    const [one, two, first, second] = await Promise.all([
      back(),
      back(),
      gateway.app.reconcilers.turn(),
      replica.app.reconcilers.turn(),
    ]);
    const fresh = [one, two].filter((page) => page.status === 200 && !/already/i.test(page.text)).length;
    t.strictSame([one.status, two.status], [200, 200]);
    t.equal(fresh + credited(first) + credited(second), 1);
    t.equal(await gateway.balance((await purchase(gateway, session)).account_id), 7_000_000n);
  }
  t.strictSame(await audit(gateway.db), []);
});

test('an unpaid session stays open, an expired one ends, a lost one ends with its time', async (t) => {
  const { checkout, gateway } = await setUp(t);
  const [unpaid, expired, lost] = [await open(gateway), await open(gateway), `cs_test_${randomUUID()}`];
  await checkout.stripe.checkout.sessions.expire(expired);
  await gateway.db
    .insertInto('top_up')
    .values({ state: 'open', account_id: randomUUID(), amount_cents: 700, session_id: lost })
    .execute();
  const opening = sql`
    insert into top_up (account_id, amount_cents, created_at) select gen_random_uuid(), 700, now() - age
    from unnest(array['0 hours', '27 hours']::interval[]) age`;
  await opening.execute(gateway.db);
  t.equal(credited(await gateway.app.reconcilers.turn()), 0);
  const withoutSession = gateway.db.selectFrom('top_up').select('state').where('session_id', 'is', null);
  t.strictSame(
    (await withoutSession.orderBy('created_at').execute()).map(({ state }) => state),
    ['expired', 'opening'],
  );
  t.equal((await purchase(gateway, unpaid)).state, 'open');
  t.equal((await purchase(gateway, expired)).state, 'expired');
  t.equal((await purchase(gateway, lost)).state, 'open');
  await age(gateway, lost, 24 * HOUR + 61);
  await age(gateway, unpaid, 24 * HOUR + 61);
  await gateway.app.reconcilers.turn();
  t.equal((await purchase(gateway, lost)).state, 'expired');
  t.equal((await purchase(gateway, unpaid)).state, 'open', 'the processor says when a session is over');
  await age(gateway, unpaid, 15 * 24 * HOUR);
  await gateway.app.reconcilers.turn();
  t.equal((await purchase(gateway, unpaid)).state, 'expired');
});

test('R16: a bank payment is credited however late it succeeds, and ends when it fails', async (t) => {
  const { checkout, gateway } = await setUp(t);
  const [late, refused] = [await open(gateway), await open(gateway)];
  for (const session of [late, refused]) {
    await checkout.pay(session, 'bank');
    await age(gateway, session, 40 * 24 * HOUR);
  }
  t.equal((await runTurn(gateway, 'top_ups')).count, 0);
  t.strictSame([(await purchase(gateway, late)).state, (await purchase(gateway, refused)).state], ['open', 'open']);
  const { next_check_at } = await purchase(gateway, late);
  t.ok((next_check_at?.getTime() ?? Infinity) < Date.now() + 25 * 3_600_000, 'within a day');
  await checkout.endBankPayment(late, 'arrived');
  await checkout.endBankPayment(refused, 'refused');
  for (const session of [late, refused]) await age(gateway, session, 41 * 24 * HOUR);
  t.equal((await runTurn(gateway, 'top_ups')).count, 1);
  t.strictSame(
    [(await purchase(gateway, late)).state, (await purchase(gateway, refused)).state],
    ['credited', 'expired'],
  );
});

test('an open purchase is checked ever more rarely, and once more after its end', async (t) => {
  const { checkout, gateway } = await setUp(t);
  const session = await open(gateway);
  const next = async (seconds: number) => {
    await age(gateway, session, seconds);
    await gateway.app.reconcilers.turn();
    const { created_at, next_check_at } = await purchase(gateway, session);
    return (next_check_at.getTime() - created_at.getTime()) / 1000;
  };
  const about = (actual: number, expected: number) =>
    assert.ok(actual >= expected - 1 && actual < expected + 60, `${actual} s after it was opened, not ${expected}`);
  about(await next(0), 0);
  about(await next(0.9 * HOUR), 0.9 * HOUR);
  about(await next(2 * HOUR), 2.5 * HOUR);
  about(await next(12 * HOUR), 15 * HOUR);
  about(await next(23 * HOUR), 24 * HOUR + 60);
  const before = retrieves(checkout).length;
  await gateway.app.reconcilers.turn();
  t.equal(retrieves(checkout).length, before, 'not before its time');
});

test('R16: one paid checkout among a hundred abandoned is credited in the next turn', async (t) => {
  const { checkout, gateway } = await setUp(t);
  await gateway.db
    .insertInto('top_up')
    .values(
      Array.from({ length: 100 }, () => ({
        state: 'open',
        account_id: randomUUID(),
        amount_cents: 700,
        session_id: `cs_test_${randomUUID()}`,
      })),
    )
    .execute();
  const session = await open(gateway);
  await checkout.pay(session);
  checkout.calls.length = 0;
  t.equal((await runTurn(gateway, 'top_ups')).count, 1);
  t.equal((await purchase(gateway, session)).state, 'credited');
  t.equal(checkout.calls.length, 25 + 1);
  for (let turn = 0; turn < 3; turn++) await runTurn(gateway, 'top_ups');
  const asked = new Set(retrieves(checkout, 'cs_').map(({ path }) => path));
  t.equal(asked.size, 100, 'each has its turn');
  t.strictSame(await audit(gateway.db), []);
});

const DAY = 86_400;

test('catching up reads the lists again from the given time, also during another pass', async (t) => {
  const before = await startGateway(t);
  const { id: instance_id } = await before.db.selectFrom('instance').select('id').executeTakeFirstOrThrow();
  const created = Math.floor(Date.now() / 1000) - 3 * DAY;
  const metadata = { instance_id, top_up_id: randomUUID(), account_id: randomUUID() };
  const session = storedSession(created, metadata);
  const checkout = await startFaultyCheckout(t, { sessions: [session] });
  const card = { STRIPE_SECRET_KEY: checkout.secretKey, STRIPE_API_BASE: checkout.apiBase };
  const { databaseUrl } = before;
  const gateway = await startGateway(t, card, { databaseUrl });
  const readUntil = sql<Date>`now() - interval '25 hours'`;
  await gateway.db.updateTable('processor_list').set({ read_until: readUntil }).execute();
  const runner = testRunner(gateway);
  t.strictSame((await runner.turn()).map(({ count }) => count).filter(Boolean), []);

  let isTaken = false;
  let giveUp = () => {};
  const other = new TurnLeases(gateway.db).run('checkout_sweep', 0, async () => {
    isTaken = true;
    await new Promise<void>((resolve) => {
      giveUp = resolve;
    });
  });
  await until(() => isTaken);
  const since = new Date((created - 60) * 1000);
  const catching = catchUp(gateway.db, runner, since);
  await until(async () => {
    const { rows } = await sql`select from processor_list where name = 'refunds' and pass_started_at is null
      and read_until > ${since}`.execute(gateway.db);
    return rows.length > 0;
  });
  giveUp();
  await other;
  const results = await catching;
  t.strictSame(
    results.filter(({ count, outcome }) => count > 0 || outcome !== 'done'),
    [{ name: 'checkout_sweep', outcome: 'done', count: 1 }],
  );
  t.equal(await gateway.balance(metadata.account_id), 7_000_000n);
  t.equal(
    (await catchUp(gateway.db, runner, since)).find(({ count }) => count > 0),
    undefined,
  );
  t.strictSame(await audit(gateway.db), []);
});

test('catching up continues past a purchase that fails', async (t) => {
  const checkout = await startFaultyCheckout(t);
  const card = { STRIPE_SECRET_KEY: checkout.secretKey, STRIPE_API_BASE: checkout.apiBase };
  const gateway = await startGateway(t, card);
  await sql`
    insert into top_up (state, account_id, amount_cents, session_id, created_at)
    select 'open', gen_random_uuid(), 700, 'cs_test_' || n, now() - interval '2 hours' from generate_series(1, 60) n`.execute(
    gateway.db,
  );
  const refused = answerWith(403, '{"error":{"type":"invalid_request_error"}}');
  checkout.fault = (method, path, response) => path.endsWith('/cs_test_7') && refused(method, path, response);
  const results = await catchUp(gateway.db, testRunner(gateway), new Date(Date.now() - DAY * 1000));
  const { outcome } = results.find(({ name }) => name === 'top_ups') ?? {};
  t.equal(outcome, 'failed', 'which is told');
  const asked = new Set(checkout.calls.map(({ path }) => path).filter((path) => path.includes('cs_test_')));
  t.equal(asked.size, 60);
  checkout.fault = answerWith(500, '');
  const ended = await catchUp(gateway.db, testRunner(gateway), new Date(Date.now() - DAY * 1000));
  t.ok(
    ended.some(({ outcome }) => outcome === 'failed'),
    'it ends when the processor is unavailable',
  );
});

const TURN = {
  signal: new AbortController().signal,
  steadyMs: Number.POSITIVE_INFINITY,
  done: () => {},
  report: () => {},
};
const PAGES = ['a', 'b', 'c'];

test('a page that could not be booked is read again, even after an aborted pass', async (t) => {
  const { url } = await testDatabase(t);
  const db = openDatabase(url, { maxConnections: 2 });
  t.teardown(() => db.destroy());
  const handled: string[] = [];
  let isFaulty = true;
  const steps = {
    read: async (_createdFrom: number, after: string | undefined) => {
      const page = after === undefined ? 0 : PAGES.indexOf(after) + 1;
      if (isFaulty && page === 2) throw new Error('the processor is away');
      return { entries: [{ id: PAGES[page] as string }], hasMore: page < PAGES.length - 1 };
    },
    handle: async ([entry]: readonly { readonly id: string }[]) => {
      const isHandled = !isFaulty || entry?.id !== 'b';
      if (entry && isHandled) handled.push(entry.id);
      return isHandled;
    },
  };
  await t.rejects(runPass(db, 'refunds', steps, TURN), /is away/);
  t.strictSame(handled, ['a']);
  isFaulty = false;
  await runPass(db, 'refunds', steps, TURN);
  t.strictSame(handled, ['a', 'b', 'c']);
  const list = await db.selectFrom('processor_list').selectAll().where('name', '=', 'refunds').executeTakeFirst();
  t.strictSame([list?.pass_started_at, list?.pass_cursor], [null, null]);
});

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
