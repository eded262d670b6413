import assert from 'node:assert/strict';
import { once } from 'node:events';
import { sql } from 'kysely';
import pg from 'pg';
import { pino } from 'pino';
import { type Test, test } from 'tap';
import { openDatabase } from '../../src/db/database.ts';
import { migrate } from '../../src/db/migrate.ts';
import type { Reconciler } from '../../src/reconcile/reconciler.ts';
import { ReconcilerRunner, TurnLeases } from '../../src/reconcile/runner.ts';
import { testDatabase } from '../support/database.ts';
import { until } from '../support/until.ts';

interface LogLine {
  readonly level: number;
  readonly msg: string;
  readonly reconciler?: string;
}

function setUp(
  t: Test,
  databaseUrl: string,
  reconcilers: Reconciler[],
  { intervalMs = 60_000 }: { intervalMs?: number } = {},
) {
  const lines: LogLine[] = [];
  const reported: [string, number][] = [];
  const db = openDatabase(databaseUrl, { maxConnections: 3 });
  const runner = new ReconcilerRunner({
    db,
    reconcilers,
    intervalMs,
    log: pino({ level: 'info' }, { write: (line) => lines.push(JSON.parse(line)) }),
    onResult: (name, count) => reported.push([name, count]),
  });
  t.teardown(async () => {
    await runner.stop();
    await db.destroy();
  });
  return { db, runner, lines, reported };
}

function withResolvers(): { promise: Promise<void>; resolve: () => void } {
  let resolve = () => {};
  const promise = new Promise<void>((settle) => {
    resolve = settle;
  });
  return { promise, resolve };
}

test('two replicas run a reconciler one at a time, and once per interval together', async (t) => {
  const { url } = await testDatabase(t);
  const intervalMs = 100;
  const begun: Date[] = [];
  let running = 0;
  let most = 0;
  const reconciler: Reconciler = {
    name: 'probe',
    async run() {
      running += 1;
      most = Math.max(most, running);
      const row = await first.db.selectFrom('reconciler').selectAll().executeTakeFirstOrThrow();
      begun.push(row.started_at);
      running -= 1;
    },
  };
  const first = setUp(t, url, [reconciler], { intervalMs });
  const second = setUp(t, url, [reconciler], { intervalMs });
  first.runner.start();
  second.runner.start();
  await until(() => begun.length >= 12);
  await Promise.all([first.runner.stop(), second.runner.stop()]);
  t.equal(most, 1);
  const gaps = begun.slice(1).map((at, index) => at.getTime() - (begun[index] as Date).getTime());
  // 90 ms by the database's clock; timestamps come here in whole milliseconds.
  t.ok(
    gaps.every((gap) => gap >= intervalMs * 0.9 - 1),
    `gaps of ${gaps} ms`,
  );
});

test("a reconciler of every nth turn runs in a process's first turn", async (t) => {
  const { url } = await testDatabase(t);
  const life = async () => {
    const acts = { often: 0, rare: 0 };
    const { runner } = setUp(
      t,
      url,
      [
        { name: 'often', run: async () => void acts.often++ },
        { name: 'rare', everyTurns: 1_000_000, run: async () => void acts.rare++ },
      ],
      { intervalMs: 20 },
    );
    runner.start();
    await until(() => acts.often >= 5 && acts.rare > 0);
    await runner.stop();
    assert.equal(acts.rare, 1);
  };
  await life();
  await life();
});

test('turns go on at their interval after many that were hurried', async (t) => {
  const { url } = await testDatabase(t);
  let runs = 0;
  const reconciler: Reconciler = { name: 'probe', run: async () => void runs++ };
  const { runner } = setUp(t, url, [reconciler], { intervalMs: 500 });
  runner.start();
  for (let hurried = 0; hurried < 200; hurried++) {
    const before = runs;
    runner.hurry(['probe']);
    await until(() => runs > before);
  }
  const before = runs;
  await until(() => runs >= before + 3);
});

test('a long turn is not joined by another replica or by the same one', async (t) => {
  const { url } = await testDatabase(t);
  const entered = withResolvers();
  const leave = withResolvers();
  let runs = 0;
  const reconciler: Reconciler = {
    name: 'slow',
    async run({ done }) {
      runs += 1;
      entered.resolve();
      if (runs === 1) await leave.promise;
      done(1);
    },
  };
  const first = setUp(t, url, [reconciler]);
  const second = setUp(t, url, [reconciler]);
  const long = first.runner.turn();
  await entered.promise;
  t.strictSame(await second.runner.turn(), [{ name: 'slow', outcome: 'skipped', count: 0 }]);
  t.strictSame(await first.runner.turn(), [{ name: 'slow', outcome: 'skipped', count: 0 }]);
  leave.resolve();
  t.strictSame(await long, [{ name: 'slow', outcome: 'done', count: 1 }]);
  t.equal(runs, 1);
  t.strictSame(await second.runner.turn(), [{ name: 'slow', outcome: 'done', count: 1 }]);
  t.strictSame(second.reported, [['slow', 1]]);
});

test('turns are steady since the last pause of over three intervals and half a lease', async (t) => {
  const { url } = await testDatabase(t);
  const intervalMs = 500;
  const seen: number[] = [];
  const reconciler: Reconciler = { name: 'probe', run: async ({ steadyMs }) => void seen.push(steadyMs) };
  const life = async (end: () => boolean) => {
    const { db, runner } = setUp(t, url, [reconciler], { intervalMs });
    runner.start();
    await until(end);
    await runner.stop();
    return db;
  };
  const db = await life(() => seen.length > 0);
  t.ok((seen[0] as number) > 365 * 86_400_000, 'the first of all has no pause before it');
  const pause = (length: string) => sql`update reconciler set started_at = now() - ${length}::interval`.execute(db);
  await pause('2 seconds');
  seen.length = 0;
  await life(() => seen.length > 0);
  t.ok((seen[0] as number) > 365 * 86_400_000, 'a pause of four intervals ends no lease');
  await pause('8 seconds');
  seen.length = 0;
  await life(() => seen.length > 1);
  const [first, second] = seen as [number, number];
  t.equal(first, 0);
  t.ok(second > 0 && second < 600_000, String(second));
  await pause('1 hour');
  const { runner } = setUp(t, url, [reconciler], { intervalMs });
  seen.length = 0;
  await runner.turn();
  t.ok((seen[0] as number) > second, 'an operator asks for the turn');
});

test("a dead process's turn is free once its lease expires", async (t) => {
  const { url } = await testDatabase(t);
  const { db } = setUp(t, url, []);
  const pass = () => sql`update reconciler set lease_until = now() where name = 'probe'`.execute(db);
  const turns = new TurnLeases(db);
  const owner = async () =>
    (await db.selectFrom('reconciler').select('owner').where('name', '=', 'probe').executeTakeFirstOrThrow()).owner;
  const hold = async () => {
    const [entered, leave] = [withResolvers(), withResolvers()];
    const left = turns.run('probe', 0, () => {
      entered.resolve();
      return leave.promise;
    });
    await entered.promise;
    return { leave: leave.resolve, left };
  };
  const first = await hold();
  t.equal(await turns.run('probe', 0, async () => 'mine'), undefined);
  t.equal(await turns.run('another', 0, async () => 'mine'), 'mine');
  await pass();
  const second = await hold();
  const present = await owner();
  t.ok(present);
  first.leave();
  await first.left;
  t.equal(await owner(), present);
  second.leave();
  await second.left;
  t.equal(await turns.run('probe', 60_000, async () => 'mine'), undefined, 'the last one began a moment ago');
  t.equal(await turns.run('probe', 0, async () => 'mine'), 'mine');
});

const UNREACHABLE = /^reconcilers can't use the database/;
const WARN = 40;
const ERROR = 50;

test('a failing reconciler stops no other, and is logged once until it recovers', async (t) => {
  const { url } = await testDatabase(t);
  let fails = true;
  const { runner, lines, reported } = setUp(t, url, [
    {
      name: 'bad',
      async run({ done }) {
        done(2);
        if (fails) throw new Error('broken');
      },
    },
    { name: 'good', run: async ({ done }) => done(1) },
  ]);
  for (let turn = 0; turn < 3; turn++) {
    const [bad, good] = await runner.turn();
    assert.equal(bad?.outcome, 'failed');
    assert.equal(bad.count, 2);
    t.strictSame(good, { name: 'good', outcome: 'done', count: 1 });
  }
  fails = false;
  await runner.turn();
  const messages = lines.filter((line) => line.reconciler === 'bad').map((line) => line.msg);
  t.match(messages, [/^a reconciler failed/, /works again/, /^a reconciler completed/]);
  t.equal(messages.length, 3);
  t.equal(lines.filter((line) => line.level >= ERROR).length, 1);
  t.strictSame(
    reported.filter(([name]) => name === 'bad'),
    Array.from({ length: 4 }, () => ['bad', 2]),
  );
});

test('an unavailable database or missing tables are logged once', async (t) => {
  const { url } = await testDatabase(t);
  const work = [
    { name: 'one', run: async () => {} },
    { name: 'two', run: async () => {} },
  ];
  const away = new URL(url);
  away.port = '1';
  const unreachable = setUp(t, away.href, work, { intervalMs: 10 });
  unreachable.runner.start();
  for (let turn = 0; turn < 3; turn++) {
    const results = await unreachable.runner.turn();
    t.strictSame(
      results.map((result) => result.outcome),
      ['failed', 'failed'],
    );
  }
  t.match(unreachable.lines, [{ level: WARN, msg: UNREACHABLE }]);
  t.equal(unreachable.lines.length, 1);

  const admin = new pg.Client(url);
  await admin.connect();
  const name = `${new URL(url).pathname.slice(1)}_empty`;
  await admin.query(`create database ${name}`);
  const empty = new URL(url);
  empty.pathname = `/${name}`;
  const later = setUp(t, empty.href, work);
  t.teardown(async () => {
    await admin.query(`drop database ${name} with (force)`);
    await admin.end();
  });
  await later.runner.turn();
  await later.runner.turn();
  await migrate(empty.href);
  const results = await later.runner.turn();
  t.strictSame(
    results.map((result) => result.outcome),
    ['done', 'done'],
  );
  t.match(later.lines, [{ msg: UNREACHABLE }, { msg: /can use the database again/ }]);
  t.equal(later.lines.length, 2);
});

test('stopping signals the running turn, waits for it and starts no other', async (t) => {
  const { url } = await testDatabase(t);
  const entered = withResolvers();
  let ended = false;
  let runs = 0;
  const { runner } = setUp(
    t,
    url,
    [
      {
        name: 'slow',
        async run({ signal }) {
          runs += 1;
          entered.resolve();
          await once(signal, 'abort');
          await new Promise(setImmediate);
          ended = true;
        },
      },
    ],
    { intervalMs: 10 },
  );
  runner.start();
  await entered.promise;
  await runner.stop();
  t.equal(ended, true);
  t.equal(runs, 1);
});
