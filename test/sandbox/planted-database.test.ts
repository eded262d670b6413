import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { appendFile, chmod, cp, lchown, readdir, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { type Test, test } from 'tap';
import { startChild } from '../support/child.ts';
import { newDirectory, start } from './postgres-server.ts';

async function folder(t: Test): Promise<string> {
  const path = await newDirectory();
  t.teardown(() => rm(path, { recursive: true, force: true }));
  // So that a server of root, which runs as another user, gets in.
  await chmod(path, 0o755);
  return path;
}

/** Databases that were made until the end of the test are listed in a folder of their own. */
async function withOwnList(t: Test): Promise<string> {
  const path = await folder(t);
  const before = process.env.XDG_STATE_HOME;
  process.env.XDG_STATE_HOME = path;
  t.teardown(() => {
    if (before === undefined) delete process.env.XDG_STATE_HOME;
    else process.env.XDG_STATE_HOME = before;
  });
  return path;
}

async function chownAll(path: string, uid: number, gid: number): Promise<void> {
  for (const name of ['', ...(await readdir(path, { recursive: true }))]) await lchown(join(path, name), uid, gid);
}

/** A cluster of somebody else, as a checkout may bring it: its settings run a program. */
async function plant(t: Test): Promise<{ dataDir: string; canary: string }> {
  await withOwnList(t);
  const dataDir = await folder(t);
  await (await start(t, { dataDir })).stop();
  const canary = join(await folder(t), 'canary');
  await chmod(join(canary, '..'), 0o777);
  await appendFile(
    join(dataDir, 'postgres/cluster/data/postgresql.conf'),
    `\narchive_mode = on\narchive_timeout = 1\narchive_command = 'touch ${canary}'\nssl_passphrase_command = 'touch ${canary}'\n`,
  );
  await withOwnList(t);
  return { dataDir, canary };
}

test('a planted database is not started, and the error names --adopt', async (t) => {
  const { dataDir, canary } = await plant(t);
  await assert.rejects(start(t, { dataDir }), /^Error: .*postgres is not in the list .* not started\. .*--adopt/);
  assert.equal(existsSync(join(dataDir, 'postgres/cluster/data/postmaster.pid')), false);
  assert.equal(existsSync(canary), false);

  const sandbox = startChild(t, 'src/sandbox/main.ts', { DATA_DIR: dataDir });
  assert.equal(await sandbox.ended(), 78, sandbox.output());
  assert.match(sandbox.output(), /--adopt/);
  assert.doesNotMatch(sandbox.output(), /^\s+at /m, 'no stack');
});

test('an adopted database starts now and later', async (t) => {
  await withOwnList(t);
  const dataDir = await folder(t);
  await (await start(t, { dataDir })).stop();
  await withOwnList(t);
  await assert.rejects(start(t, { dataDir }), /--adopt/);
  await (await start(t, { dataDir, adopt: true })).stop();
  await (await start(t, { dataDir })).stop();
});

test('a database is trusted only at its place, neither copied nor replaced', async (t) => {
  await withOwnList(t);
  const [mine, copy, other] = [await folder(t), await folder(t), await folder(t)];
  for (const dataDir of [mine, other]) await (await start(t, { dataDir })).stop();
  await cp(join(mine, 'postgres'), join(copy, 'postgres'), { recursive: true, preserveTimestamps: true });
  const { uid, gid } = await stat(join(mine, 'postgres'));
  await chownAll(join(copy, 'postgres'), uid, gid);
  await assert.rejects(start(t, { dataDir: copy }), /is not in the list/);

  await rm(join(mine, 'postgres'), { recursive: true });
  await cp(join(other, 'postgres'), join(mine, 'postgres'), { recursive: true });
  await chownAll(join(mine, 'postgres'), uid, gid);
  await assert.rejects(start(t, { dataDir: mine }), /is not in the list/);
});

test('without a folder for the list nothing starts, and the error names the setting', async (t) => {
  const dataDir = await folder(t);
  for (const env of [{ HOME: '/dev/null' }, { HOME: '' }, { HOME: 'relative' }]) {
    const sandbox = startChild(t, 'src/sandbox/main.ts', { DATA_DIR: dataDir, XDG_STATE_HOME: '', ...env });
    assert.equal(await sandbox.ended(), 78, sandbox.output());
    assert.match(sandbox.output(), /Set XDG_STATE_HOME to a folder of your own/);
    assert.doesNotMatch(sandbox.output(), /^\s+at /m, 'no stack');
    assert.deepEqual(
      (await readdir(dataDir)).filter((name) => name.startsWith('postgres')),
      [],
    );
  }
});
