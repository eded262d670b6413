import assert from 'node:assert/strict';
import { chown, mkdir, readdir, readFile, stat, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { createTransport } from 'nodemailer';
import { type Test, test } from 'tap';
import {
  createOwnFile,
  ForeignFileError,
  openOwnLog,
  ownFolder,
  ownSubfolder,
  readOwnFile,
} from '../../src/lib/private-files.ts';
import { startCheckout } from '../../src/sandbox/checkout/checkout-server.ts';
import { startMailSink } from '../../src/sandbox/local-mail.ts';
import { writeSandboxFile } from '../../src/sandbox/sandbox-file.ts';
import { sandboxKeys } from '../../src/sandbox/sandbox-keys.ts';
import { StoreError } from '../../src/speech/store/audio-store.ts';
import { FileAudioStore } from '../../src/speech/store/file-store.ts';
import { startChild } from '../support/child.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';

const NOBODY = 65_534;
const IS_ROOT = process.geteuid?.() === 0;

/** A folder of somebody else: root may give one away, anybody else knows one of root's. */
async function foreignFolder(t: Test): Promise<string> {
  if (!IS_ROOT) return '/usr';
  const folder = join(await temporaryFolder(t), 'theirs');
  await mkdir(folder);
  await chown(folder, NOBODY, NOBODY);
  return folder;
}

/** Writes with the sandbox's parts whatever they write. */
async function write(dataDir: string): Promise<void> {
  await sandboxKeys(dataDir);
  await writeSandboxFile(dataDir, { baseUrl: '' } as never);
  const checkout = await startCheckout({ dataDir, secretKey: 'sk_test_files' });
  await checkout.close();
  const arrived: string[] = [];
  const sink = await startMailSink({ dataDir, onMail: (file) => arrived.push(file) });
  await createTransport(sink.url).sendMail({ from: 'a@a.test', to: 'b@b.test', text: 'hello' });
  await sink.close();
  assert.equal(arrived.length, 1);
  const store = new FileAudioStore(join(dataDir, 'audio'));
  await store.put('key', Buffer.from('audio'));
  await store.close();
}

for (const umask of [0, 0o277]) {
  test(`folders are 0700 and files 0600 under the umask ${umask.toString(8)}`, async (t) => {
    const dataDir = join(await temporaryFolder(t), 'data');
    const former = process.umask(umask);
    try {
      await ownFolder(dataDir);
      await write(dataDir);
    } finally {
      process.umask(former);
    }
    const names = await readdir(dataDir, { recursive: true });
    t.ok(names.length >= 8, names.join());
    for (const name of ['', ...names]) {
      const status = await stat(join(dataDir, name));
      t.equal((status.mode & 0o777).toString(8), status.isDirectory() ? '700' : '600', name);
    }
  });
}

test('links planted in DATA_DIR are neither read nor written through', async (t) => {
  const directory = await temporaryFolder(t);
  const outside = join(directory, 'outside');
  await writeFile(outside, 'theirs');
  for (const name of ['sandbox.json', 'sandbox.json.new', 'checkout.json.new']) {
    await symlink(outside, join(directory, name));
  }
  await writeSandboxFile(directory, { baseUrl: '' } as never);
  await (await startCheckout({ dataDir: directory, secretKey: 'sk_test_files' })).close();
  await symlink(outside, join(directory, 'sandbox-keys.json'));
  await assert.rejects(sandboxKeys(directory), ForeignFileError);
  await symlink(outside, join(directory, 'log'));
  await assert.rejects(openOwnLog(join(directory, 'log')), ForeignFileError);
  await t.rejects(createOwnFile(join(directory, 'log'), ''), { code: 'EEXIST' });
  await mkdir(join(directory, 'elsewhere'));
  await symlink(join(directory, 'elsewhere'), join(directory, 'mail'));
  await assert.rejects(startMailSink({ dataDir: directory, onMail: () => {} }), ForeignFileError);
  t.equal(await readFile(outside, 'utf8'), 'theirs');
  t.strictSame(await readdir(join(directory, 'elsewhere')), []);
});

test('a file in the place of a folder is an error, and stays', async (t) => {
  const file = join(await temporaryFolder(t), 'file');
  await writeFile(file, 'precious');
  await t.rejects(ownFolder(file), { code: 'EEXIST' });
  await t.rejects(ownFolder(join(file, 'folder')), { code: 'ENOTDIR' });
  t.equal(await readFile(file, 'utf8'), 'precious');
});

test('a folder of another user is refused, even behind a link', async (t) => {
  const folder = await foreignFolder(t);
  const before = await readdir(folder);
  const link = join(await temporaryFolder(t), 'link');
  await symlink(folder, link);
  for (const path of [folder, link]) await assert.rejects(ownFolder(path), ForeignFileError);
  await assert.rejects(ownSubfolder(link), ForeignFileError);
  const sandbox = startChild(t, 'src/sandbox/main.ts', { DATA_DIR: folder });
  t.equal(await sandbox.ended(), 78, sandbox.output());
  t.match(sandbox.output(), /belongs to user id \d+, but this process runs as user id \d+.*DATA_DIR/);
  t.strictSame(await readdir(folder), before);
});

test('a file or audio store of another user is not used', {
  skip: !IS_ROOT && 'it takes root to give a file away',
}, async (t) => {
  const directory = await temporaryFolder(t);
  const file = join(directory, 'file');
  await writeFile(file, 'theirs');
  await chown(file, NOBODY, NOBODY);
  await assert.rejects(readOwnFile(file), ForeignFileError);
  await assert.rejects(openOwnLog(file), ForeignFileError);
  t.equal(await readOwnFile(join(directory, 'none')), undefined);
  const store = new FileAudioStore(await foreignFolder(t));
  await assert.rejects(store.put('key', Buffer.from('audio')), StoreError);
});
