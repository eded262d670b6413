import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { chmod, cp, readdir, readFile, realpath, rm, stat, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import pg from 'pg';
import { test } from 'tap';
import { obstacle } from '../../src/sandbox/postgres/account.ts';
import { findPackage, serverBinaries } from '../../src/sandbox/postgres/binaries.ts';
import { findPostmaster } from '../../src/sandbox/postgres/postmaster.ts';
import { register, unregister } from '../../src/sandbox/postgres/usage.ts';
import { account, data, dataDir, killGroup, newDirectory, query, start, startElsewhere } from './postgres-server.ts';

const isRoot = process.getuid?.() === 0;

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
