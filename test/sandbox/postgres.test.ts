import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { chmod, cp, readFile, realpath, rm, stat, writeFile } from 'node:fs/promises';
import { type AddressInfo, createServer } from 'node:net';
import { dirname, join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { test } from 'tap';
import { obstacle } from '../../src/sandbox/postgres/account.ts';
import { findPackage, serverBinaries } from '../../src/sandbox/postgres/binaries.ts';
import { findPostmaster, shutDownPostmaster } from '../../src/sandbox/postgres/postmaster.ts';
import { sandboxFolder } from '../support/sandbox-folder.ts';
import { account, data, dataDir, query, start, startElsewhere } from './postgres-server.ts';

test('the data and the port survive a stop, and stop() ends the server', async (t) => {
  const first = await start(t, { dataDir });
  await query(first.url, "create table kept as select 'é' as word");
  await first.stop();
  t.equal(await findPostmaster(data()), undefined);
  const second = await start(t, { dataDir, durable: true });
  t.strictSame(await query(second.url, 'show fsync'), [{ fsync: 'on' }]);
  t.equal(second.url, first.url);
  t.strictSame(await query(second.url, 'select upper(word) as word from kept'), [{ word: 'É' }]);
  t.strictSame(await query(second.adminUrl, 'select current_database() as name'), [{ name: 'postgres' }]);
  await second.stop();
});

test('the server accepts over 100 connections, from loopback with the password only', async (t) => {
  const { url, nearUrl, home, stop } = await start(t, { dataDir });
  const names = ['max_connections', 'listen_addresses', 'unix_socket_directories'];
  const settings = await query(url, `select name, setting from pg_settings where name in ('${names.join("','")}')`);
  const setting = Object.fromEntries(settings.map((row) => [row.name, row.setting]));
  t.ok(Number(setting.max_connections) > 100);
  t.equal(setting.listen_addresses, '127.0.0.1');
  const data = join(home, 'cluster/data');
  t.equal(setting.unix_socket_directories, data);
  t.equal((await stat(data)).mode & 0o777, 0o700);
  t.strictSame(await query(nearUrl, 'select inet_client_addr() as address'), [{ address: null }]);
  const stranger = new URL(url);
  stranger.password = 'guessed';
  await t.rejects(query(stranger.href, 'select 1'), { code: '28P01' });
  await t.rejects(query(nearUrl.replace(/password=[^&]*/, 'password=guessed'), 'select 1'), { code: '28P01' });
  t.equal((await stat(join(dataDir, 'postgres/cluster/password'))).mode & 0o777, 0o600);
  await stop();
});

test('a server orphaned by a killed process group is replaced on its port', async (t) => {
  const child = startElsewhere(t, dataDir);
  const [before] = await child.printed(/postgres:\S+/);
  await query(before, 'create table left_behind as select 3 as n');
  const left = await findPostmaster(data());
  await child.stop('SIGKILL');
  const { url, stop } = await start(t, { dataDir });
  t.equal(url, before);
  t.not((await findPostmaster(data()))?.pid, left?.pid);
  t.strictSame(await query(url, 'select n from left_behind'), [{ n: 3 }]);
  await stop();
  t.equal(await findPostmaster(data()), undefined);
});

test('after kill -9 of the server the next start recovers committed data', async (t) => {
  const { url } = await start(t, { dataDir });
  await query(url, 'create table committed as select 7 as n');
  const running = await findPostmaster(data());
  assert.ok(running);
  process.kill(running.pid, 'SIGKILL');
  t.strictSame(await query((await start(t, { dataDir })).url, 'select n from committed'), [{ n: 7 }]);
});

test('a server that is killed while it stops counts as stopped', async (t) => {
  await start(t, { dataDir });
  const { pid = 0 } = (await findPostmaster(data())) ?? {};
  const folder = await sandboxFolder(t);
  await chmod(folder, 0o755);
  const pgCtl = join(folder, 'pg_ctl');
  const untilGone = `while kill -0 ${pid} 2> /dev/null; do sleep 0.01; done`;
  await writeFile(pgCtl, `#!/bin/sh\nkill -9 ${pid}\n${untilGone}\nexit 1\n`, { mode: 0o755 });
  await shutDownPostmaster({ postgres: '', logFile: '', pgCtl, account, data: data() });
  await query((await start(t, { dataDir })).url, 'select 1');
});

test('a stale process id of another program neither blocks the start nor is killed', async (t) => {
  const bystander = spawn('sleep', ['60'], account.identity);
  t.teardown(() => bystander.kill());
  await once(bystander, 'spawn');
  const pidFile = join(data(), 'postmaster.pid');
  await writeFile(pidFile, `${bystander.pid}\n${data()}\n1700000000\n5432\n\n127.0.0.1\n  1234  5678\nready   \n`);
  const { url, stop } = await start(t, { dataDir });
  await query(url, 'select 1');
  await stop();
  t.equal(bystander.exitCode ?? bystander.signalCode, null);
});

test('a requested port is used, or named in the error when taken', async (t) => {
  const holder = createServer().listen(0, '127.0.0.1');
  t.teardown(() => holder.close());
  await once(holder, 'listening');
  const { port } = holder.address() as AddressInfo;
  await t.rejects(
    start(t, { dataDir, port }),
    new RegExp(`did not start on port ${port}: .*Address already in use`, 's'),
  );
  holder.close();
  await once(holder, 'close');
  const server = await start(t, { dataDir, port });
  t.equal(new URL(server.url).port, String(port));
  await query(server.url, 'select 1');
});

const isRoot = process.getuid?.() === 0;

test('an interrupted initialization of a cluster starts again', async (t) => {
  const directory = await sandboxFolder(t);
  const unfinished = join(directory, 'postgres/cluster.new');
  const child = startElsewhere(t, directory);
  while (!existsSync(join(unfinished, 'data/base'))) {
    t.equal(child.output(), '', 'the cluster was complete before it was seen');
    await sleep(2);
  }
  await child.stop('SIGKILL');
  t.equal(existsSync(unfinished), true);
  const { url } = await start(t, { dataDir: directory });
  await query(url, 'select 1');
  t.equal(existsSync(unfinished), false);
});

test('a DATA_DIR inaccessible to the server works and keeps its data', async (t) => {
  const directory = await sandboxFolder(t);
  await writeFile(join(directory, 'keys.json'), '{}');
  t.teardown(async () => rm(await realpath(join(directory, 'postgres')), { recursive: true }));
  const first = await start(t, { dataDir: directory });
  await query(first.url, 'create table kept as select 1 as n');
  await first.stop();
  const second = await start(t, { dataDir: directory });
  t.strictSame(await query(second.url, 'select n from kept'), [{ n: 1 }]);
  await second.stop();
  t.equal((await stat(directory)).mode & 0o777, 0o700, 'the directory is as private as before');
  t.equal((await realpath(join(directory, 'postgres'))) === join(await realpath(directory), 'postgres'), !isRoot);
});

test('the programs are copied if npm made no links or the server cannot reach them', async (t) => {
  const [directory, home] = [await sandboxFolder(t), await sandboxFolder(t)];
  t.teardown(() => chmod(join(directory, 'native/lib'), 0o755));
  await cp(join(findPackage(), 'package.json'), join(directory, 'package.json'));
  await cp(join(findPackage(), 'native'), join(directory, 'native'), {
    recursive: true,
    filter: (source) => !/libpq\.so(\.5)?$/.test(source),
  });
  await chmod(join(directory, 'native/lib'), 0o555);
  const binaries = await serverBinaries(home, account, () => undefined, directory);
  t.equal(dirname(dirname(dirname(dirname(binaries.initdb)))), home);
  const initdb = spawn(binaries.initdb, ['--version'], { stdio: ['ignore', 'pipe', 'inherit'] });
  const [line] = (await once(initdb.stdout as NodeJS.ReadableStream, 'data')) as [Buffer];
  t.match(line.toString(), new RegExp(`PostgreSQL\\) ${binaries.majorVersion}\\.`));
  await chmod(home, 0o755);
  t.equal(await obstacle(binaries.postgres, account), undefined);
});

test('a cluster of another major version is refused, and both versions are named', async (t) => {
  await (await start(t, { dataDir })).stop();
  const file = join(data(), 'PG_VERSION');
  const version = await readFile(file, 'utf8');
  await writeFile(file, '15\n');
  await t.rejects(start(t, { dataDir }), /is of PostgreSQL 15, but PostgreSQL 18 is installed/);
  await writeFile(file, version);
});
