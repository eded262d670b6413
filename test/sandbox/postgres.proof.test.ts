import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { chmod, cp, mkdtemp, readdir, readFile, realpath, rm, stat, writeFile } from 'node:fs/promises';
import { type AddressInfo, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import pg from 'pg';
import { type Test, t, test } from 'tap';
import { obstacle, serverAccount } from '../../src/sandbox/postgres/account.ts';
import { findPackage, serverBinaries } from '../../src/sandbox/postgres/binaries.ts';
import { findPostmaster } from '../../src/sandbox/postgres/postmaster.ts';
import { register, unregister } from '../../src/sandbox/postgres/usage.ts';
import { type PostgresOptions, startPostgres } from '../../src/sandbox/postgres.ts';

const isRoot = process.getuid?.() === 0;
const account = await serverAccount();

/** Shared by the tests that need a cluster, but not an empty one: creating one takes a second. */
const dataDir = await newDirectory();
const data = () => join(dataDir, 'postgres/cluster/data');
t.teardown(() => rm(dataDir, { recursive: true, force: true }));

/** Starts it without fsync, and stops it with the test at the latest. */
async function start(t: Test, options: PostgresOptions) {
  const server = await startPostgres({ durable: false, ...options });
  t.teardown(server.stop);
  return server;
}

function newDirectory(): Promise<string> {
  return mkdtemp(join(tmpdir(), 'speechgate-postgres-'));
}

async function query(url: string, text: string): Promise<Record<string, unknown>[]> {
  const client = new pg.Client(url);
  try {
    await client.connect();
    return (await client.query(text)).rows;
  } finally {
    await client.end();
  }
}

/** A process, in a group of its own, that starts PostgreSQL and prints its URL. */
function startElsewhere(t: Test, directory: string): ChildProcess {
  const module = fileURLToPath(new URL('../../src/sandbox/postgres.ts', import.meta.url));
  const script = `
    const { startPostgres } = await import(${JSON.stringify(module)});
    const { url } = await startPostgres({ dataDir: ${JSON.stringify(directory)}, durable: false });
    console.log(url);
    setInterval(() => {}, 1000);`;
  const child = spawn(process.execPath, ['--import', 'tsx', '--input-type=module', '--eval', script], {
    stdio: ['ignore', 'pipe', 'inherit'],
    detached: true,
  });
  t.teardown(() => killGroup(child));
  return child;
}

function killGroup(child: ChildProcess): void {
  if (child.pid && child.exitCode === null && child.signalCode === null) process.kill(-child.pid, 'SIGKILL');
}

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
  const { url, stop } = await start(t, { dataDir });
  const names = ['max_connections', 'listen_addresses', 'unix_socket_directories'];
  const settings = await query(url, `select name, setting from pg_settings where name in ('${names.join("','")}')`);
  const setting = Object.fromEntries(settings.map((row) => [row.name, row.setting]));
  assert.ok(Number(setting.max_connections) > 100);
  assert.equal(setting.listen_addresses, '127.0.0.1');
  assert.equal(setting.unix_socket_directories, '');

  const stranger = new URL(url);
  stranger.password = 'guessed';
  await assert.rejects(query(stranger.href, 'select 1'), { code: '28P01' });
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

test('an interrupted creation blocks nobody, and two processes that create the same cluster at once share it', async (t) => {
  const directory = await newDirectory();
  t.teardown(() => rm(directory, { recursive: true, force: true }));
  const home = join(directory, 'postgres');
  const unfinished = async () => (await readdir(home).catch(() => [])).filter((name) => name.includes('.new-'));

  const child = startElsewhere(t, directory);
  const started = once(child.stdout as NodeJS.ReadableStream, 'data').then(() => 'started');
  for (;;) {
    const [name] = await unfinished();
    if (name && existsSync(join(home, name, 'data/base'))) break;
    assert.notEqual(await Promise.race([started, sleep(2)]), 'started', 'the cluster was complete before it was seen');
  }
  killGroup(child);
  await once(child, 'exit');
  assert.equal((await unfinished()).length, 1);

  const [one, two] = await Promise.all([1, 2].map(() => start(t, { dataDir: directory })));
  assert.equal(one?.url, two?.url);
  await Promise.all([one?.stop(), two?.stop()]);
  assert.equal(await findPostmaster(join(home, 'cluster/data')), undefined);
  assert.deepEqual(await unfinished(), []);
});

test('whoever leaves while another one that is alone stops the server leaves in peace', async (t) => {
  const server = await start(t, { dataDir });
  const leaving = new pg.Client(server.adminUrl);
  leaving.on('error', () => {});
  await leaving.connect();
  assert.equal(await register(leaving), true);
  const stopped = new Promise<void>((resolve) => leaving.once('end', resolve));
  await leaving.query('select pg_advisory_unlock_all()');
  await server.stop();
  await stopped;
  assert.equal(await unregister(leaving), false);
});

test('a DATA_DIR that the server has no way into still works, and keeps its data', async (t) => {
  const directory = await newDirectory();
  await writeFile(join(directory, 'keys.json'), '{}');
  t.teardown(async () => {
    await rm(await realpath(join(directory, 'postgres')), { recursive: true });
    await rm(directory, { recursive: true });
  });
  const first = await start(t, { dataDir: directory });
  await query(first.url, 'create table kept as select 1 as n');
  await first.stop();
  const second = await start(t, { dataDir: directory });
  assert.deepEqual(await query(second.url, 'select n from kept'), [{ n: 1 }]);
  await second.stop();
  assert.equal((await stat(directory)).mode & 0o777, 0o700, 'the directory is as private as before');
  assert.equal((await realpath(join(directory, 'postgres'))) === join(await realpath(directory), 'postgres'), !isRoot);
});

test('the programs are copied when npm made no links, or when the server has no way to them', async (t) => {
  const directory = await newDirectory();
  const home = await newDirectory();
  t.teardown(async () => {
    await chmod(join(directory, 'native/lib'), 0o755);
    for (const each of [directory, home]) await rm(each, { recursive: true });
  });
  await cp(join(findPackage(), 'package.json'), join(directory, 'package.json'));
  await cp(join(findPackage(), 'native'), join(directory, 'native'), {
    recursive: true,
    filter: (source) => !/libpq\.so(\.5)?$/.test(source),
  });
  await chmod(join(directory, 'native/lib'), 0o555);

  const binaries = await serverBinaries(home, account, () => undefined, directory);
  assert.equal(dirname(dirname(dirname(dirname(binaries.initdb)))), home);
  const initdb = spawn(binaries.initdb, ['--version'], { stdio: ['ignore', 'pipe', 'inherit'] });
  const [line] = (await once(initdb.stdout as NodeJS.ReadableStream, 'data')) as [Buffer];
  assert.match(line.toString(), new RegExp(`PostgreSQL\\) ${binaries.majorVersion}\\.`));
  await chmod(home, 0o755);
  assert.equal(await obstacle(binaries.postgres, account), undefined);
});

test('a cluster of another major version is refused with both versions named', async (t) => {
  const file = join(data(), 'PG_VERSION');
  const version = await readFile(file, 'utf8');
  await writeFile(file, '15\n');
  await assert.rejects(start(t, { dataDir }), /made by PostgreSQL 15, and the one installed is 18/);
  await writeFile(file, version);
});
