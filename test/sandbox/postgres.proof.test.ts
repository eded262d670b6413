import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { stat, writeFile } from 'node:fs/promises';
import { type AddressInfo, createServer } from 'node:net';
import { join } from 'node:path';
import { test } from 'tap';
import { findPostmaster } from '../../src/sandbox/postgres/postmaster.ts';
import { account, data, dataDir, killGroup, query, start, startElsewhere } from './postgres-server.ts';

test('the data and the port survive a stop, and stop() ends the server', async (t) => {
  const first = await start(t, { dataDir });
  await query(first.url, "create table kept as select 'é' as word");
  await first.stop();
  assert.equal(await findPostmaster(data()), undefined);

  const second = await start(t, { dataDir });
  assert.equal(second.url, first.url);
  assert.deepEqual(await query(second.url, 'select upper(word) as word from kept'), [{ word: 'É' }]);
  assert.deepEqual(await query(second.adminUrl, 'select current_database() as name'), [{ name: 'postgres' }]);
  await second.stop();
});

test('it takes 100 connections and more, only from this machine and only with the password', async (t) => {
  const { url, nearUrl, home, stop } = await start(t, { dataDir });
  const names = ['max_connections', 'listen_addresses', 'unix_socket_directories'];
  const settings = await query(url, `select name, setting from pg_settings where name in ('${names.join("','")}')`);
  const setting = Object.fromEntries(settings.map((row) => [row.name, row.setting]));
  assert.ok(Number(setting.max_connections) > 100);
  assert.equal(setting.listen_addresses, '127.0.0.1');
  const data = join(home, 'cluster/data');
  assert.equal(setting.unix_socket_directories, data);
  assert.equal((await stat(data)).mode & 0o777, 0o700);
  assert.deepEqual(await query(nearUrl, 'select inet_client_addr() as address'), [{ address: null }]);

  const stranger = new URL(url);
  stranger.password = 'guessed';
  await assert.rejects(query(stranger.href, 'select 1'), { code: '28P01' });
  await assert.rejects(query(nearUrl.replace(/password=[^&]*/, 'password=guessed'), 'select 1'), { code: '28P01' });
  assert.equal((await stat(join(dataDir, 'postgres/cluster/password'))).mode & 0o777, 0o600);
  await stop();
});

test('fsync is on unless it is switched off, and a server without it is replaced when nobody uses it', async (t) => {
  const careless = await start(t, { dataDir });
  assert.deepEqual(await query(careless.url, 'show fsync'), [{ fsync: 'off' }]);
  await assert.rejects(start(t, { dataDir, durable: true }), /Another process uses .* without fsync/);
  assert.deepEqual(await query(careless.url, 'select 1 as alive'), [{ alive: 1 }]);
  await careless.stop();

  const durable = await start(t, { dataDir, durable: true });
  assert.deepEqual(await query(durable.url, 'show fsync'), [{ fsync: 'on' }]);
  await durable.stop();
});

test('the server runs until the last that uses it stops', async (t) => {
  const users = await Promise.all([1, 2, 3].map(() => start(t, { dataDir })));
  const [first, second, third] = users as [(typeof users)[0], (typeof users)[0], (typeof users)[0]];
  assert.equal(second.url, first.url);
  assert.equal(third.url, first.url);
  await first.stop();
  await third.stop();
  assert.deepEqual(await query(second.url, 'select 1 as alive'), [{ alive: 1 }]);
  await second.stop();
  await assert.rejects(query(second.url, 'select 1'), { code: 'ECONNREFUSED' });
});

test('a server outlives the whole process group that started it, is used on, and then stopped', async (t) => {
  const child = startElsewhere(t, dataDir);
  const [line] = (await once(child.stdout as NodeJS.ReadableStream, 'data')) as [Buffer];
  const left = await findPostmaster(data());
  killGroup(child);
  await once(child, 'exit');

  const { url, stop } = await start(t, { dataDir });
  assert.equal(url, line.toString().trim());
  assert.equal((await findPostmaster(data()))?.pid, left?.pid);
  await query(url, 'select 1');
  await stop();
  assert.equal(await findPostmaster(data()), undefined);
});

test('after a kill of the server itself, the next start recovers what was committed', async (t) => {
  const { url } = await start(t, { dataDir });
  await query(url, 'create table committed as select 7 as n');
  const running = await findPostmaster(data());
  assert.ok(running);
  process.kill(running.pid, 'SIGKILL');
  const again = await start(t, { dataDir });
  assert.deepEqual(await query(again.url, 'select n from committed'), [{ n: 7 }]);
});

test('a process id that belongs to another program by now neither blocks the start nor is killed', async (t) => {
  const bystander = spawn('sleep', ['60'], account.identity);
  t.teardown(() => bystander.kill());
  await once(bystander, 'spawn');
  const pidFile = join(data(), 'postmaster.pid');
  await writeFile(pidFile, `${bystander.pid}\n${data()}\n1700000000\n5432\n\n127.0.0.1\n  1234  5678\nready   \n`);
  const { url, stop } = await start(t, { dataDir });
  await query(url, 'select 1');
  await stop();
  assert.equal(bystander.exitCode ?? bystander.signalCode, null);
});

test('a port that was asked for is used, or named when it is taken', async (t) => {
  const holder = createServer().listen(0, '127.0.0.1');
  t.teardown(() => holder.close());
  await once(holder, 'listening');
  const { port } = holder.address() as AddressInfo;
  await assert.rejects(start(t, { dataDir, port }), new RegExp(`Port ${port} .* is taken`));
  holder.close();
  await once(holder, 'close');
  const server = await start(t, { dataDir, port });
  assert.equal(new URL(server.url).port, String(port));
  await query(server.url, 'select 1');
});
