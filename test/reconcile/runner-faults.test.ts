import assert from 'node:assert/strict';
import { once } from 'node:events';
import pg from 'pg';
import { test } from 'tap';
import { migrate } from '../../src/db/migrate.ts';
import { testDatabase } from '../support/database.ts';
import { setUp, withResolvers } from './logged-runner.ts';

const WARN = 40;
const ERROR = 50;

test('one that fails stops no other; it is logged once, and again when it works', async (t) => {
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
    assert.deepEqual(good, { name: 'good', outcome: 'done', count: 1 });
  }
  fails = false;
  await runner.turn();
  assert.deepEqual(
    lines.filter((line) => line.reconciler === 'bad').map((line) => line.msg),
    ['a reconciler failed; it goes on in its next turn', 'a reconciler works again', 'a reconciler did its work'],
  );
  assert.equal(lines.filter((line) => line.level >= ERROR).length, 1);
  assert.deepEqual(
    reported.filter(([name]) => name === 'bad'),
    Array.from({ length: 4 }, () => ['bad', 2]),
  );
});

test('a database that is away, or has no tables yet, is logged once and waited for', async (t) => {
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
    assert.deepEqual(
      results.map((result) => result.outcome),
      ['failed', 'failed'],
    );
  }
  assert.deepEqual(
    unreachable.lines.map(({ level, msg }) => [level, msg]),
    [[WARN, 'reconcilers wait for the database']],
  );

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
  assert.deepEqual(
    results.map((result) => result.outcome),
    ['done', 'done'],
  );
  assert.deepEqual(
    later.lines.map(({ msg }) => msg),
    ['reconcilers wait for the database', 'reconcilers have the database again'],
  );
});

test('stopping tells the running turn, waits for it, and lets none follow', async (t) => {
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
  assert.equal(ended, true);
  assert.equal(runs, 1);
});
