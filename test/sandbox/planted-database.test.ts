import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { appendFile, chmod, cp, lchown, readdir, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { type Test, test } from 'tap';
import { databaseHome } from '../../src/sandbox/postgres/home.ts';
import { startChild } from '../support/child.ts';
import { sandboxFolder } from '../support/sandbox-folder.ts';
import { account, start } from './postgres-server.ts';

async function folder(t: Test): Promise<string> {
  const path = await sandboxFolder(t);
  // So that a server of root, which runs as another user, gets in.
  await chmod(path, 0o755);
  return path;
}

/** Sets a variable of the environment until the end of the test. */
function setVariable(t: Test, name: string, value: string): void {
  const before = process.env[name];
  process.env[name] = value;
  t.teardown(() => {
    if (before === undefined) delete process.env[name];
    else process.env[name] = before;
  });
}

/** Databases that were made until the end of the test are listed in a folder of their own. */
const withOwnList = async (t: Test) => setVariable(t, 'XDG_STATE_HOME', await folder(t));

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
  await t.rejects(
    start(t, { dataDir }),
    /^.*postgres is not in .*, the list of databases that this user's sandboxes made.* not started\. .*--adopt/,
  );
  t.strictSame([existsSync(join(dataDir, 'postgres/cluster/data/postmaster.pid')), existsSync(canary)], [false, false]);
  const sandbox = startChild(t, 'src/sandbox/main.ts', { DATA_DIR: dataDir });
  t.equal(await sandbox.ended(), 78, sandbox.output());
  t.match(sandbox.output(), /--adopt/);
  t.notMatch(sandbox.output(), /^\s+at /m, 'no stack');
  await t.test('an adopted one starts now and later', async (t) => {
    await (await start(t, { dataDir, adopt: true })).stop();
    await (await start(t, { dataDir })).stop();
  });
});

test('a database is trusted only at its place, neither copied nor replaced', async (t) => {
  await withOwnList(t);
  const [mine, copy, other] = [await folder(t), await folder(t), await folder(t)];
  const home = (dataDir: string) => databaseHome(dataDir, account, () => undefined);
  for (const dataDir of [mine, other]) {
    await home(dataDir);
    t.equal(await home(dataDir), join(dataDir, 'postgres'));
  }
  await cp(join(mine, 'postgres'), join(copy, 'postgres'), { recursive: true, preserveTimestamps: true });
  const { uid, gid } = await stat(join(mine, 'postgres'));
  await chownAll(join(copy, 'postgres'), uid, gid);
  await t.rejects(home(copy), /is not in .*, the list of databases that this user's sandboxes made/);
  await rm(join(mine, 'postgres'), { recursive: true });
  await cp(join(other, 'postgres'), join(mine, 'postgres'), { recursive: true });
  await chownAll(join(mine, 'postgres'), uid, gid);
  await t.rejects(home(mine), /is not in .*, the list of databases that this user's sandboxes made/);
});

test('without a folder for the list nothing starts, and the error names the setting', async (t) => {
  const dataDir = await folder(t);
  const noDatabase = async () =>
    assert.deepEqual(
      (await readdir(dataDir)).filter((name) => name.startsWith('postgres')),
      [],
    );
  setVariable(t, 'XDG_STATE_HOME', '');
  for (const home of ['/dev/null', '', 'relative']) {
    setVariable(t, 'HOME', home);
    await t.rejects(start(t, { dataDir }), /Set XDG_STATE_HOME to a folder of your own/);
    await noDatabase();
  }
  const sandbox = startChild(t, 'src/sandbox/main.ts', { DATA_DIR: dataDir, XDG_STATE_HOME: '', HOME: '' });
  t.equal(await sandbox.ended(), 78, sandbox.output());
  t.match(sandbox.output(), /Set XDG_STATE_HOME to a folder of your own/);
  t.notMatch(sandbox.output(), /^\s+at /m, 'no stack');
  await noDatabase();
});
