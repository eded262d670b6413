import assert from 'node:assert/strict';
import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdir, readdir, readFile, rm, stat, symlink, utimes, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { createInterface } from 'node:readline';
import { buffer } from 'node:stream/consumers';
import { fileURLToPath } from 'node:url';
import { type Test, test } from 'tap';
import { v7 as uuidv7 } from 'uuid';
import { FileAudioStore } from '../../../src/speech/store/file-store.ts';
import { startCommand } from '../../support/child.ts';
import { isStoreError } from '../../support/store-error.ts';
import { temporaryFolder } from '../../support/temporary-folder.ts';

const MINUTE = 29_000_000;
const WRITER = fileURLToPath(new URL('file-store-writer.js', import.meta.url));

async function filesBelow(directory: string): Promise<string[]> {
  const entries = await readdir(directory, { recursive: true, withFileTypes: true });
  return entries.filter((entry) => !entry.isDirectory()).map((entry) => join(entry.parentPath, entry.name));
}

function openStore(t: Test, root: string): FileAudioStore {
  const store = new FileAudioStore(root);
  t.teardown(() => store.close());
  return store;
}

async function newStoreWithObject(t: Test): Promise<{ root: string; store: FileAudioStore; file: string }> {
  const root = join(await temporaryFolder(t), 'audio');
  const store = openStore(t, root);
  await store.put('key', Buffer.from('inside'));
  const [file = assert.fail('no file'), ...others] = await filesBelow(root);
  assert.deepEqual(others, []);
  return { root, store, file };
}

test('an object is one private file named by the SHA-256 of its key', async (t) => {
  const { root, file } = await newStoreWithObject(t);
  const hash = '2c70e12b7a0646f92279f427c7b38e7334d8e5389cff167a1dc30e73f826b683';
  t.equal(file, join(root, hash.slice(0, 2), hash.slice(2)));
  t.equal((await stat(file)).mode & 0o777, 0o600);
  t.equal((await stat(join(file, '..'))).mode & 0o777, 0o700);
  t.equal((await stat(root)).mode & 0o777, 0o700);
});

test('a writer killed mid-write leaves only complete objects', async (t) => {
  const root = await temporaryFolder(t);
  for (let round = 0; round < 3; round += 1) {
    const writer = spawnWriter([root, 'forever']);
    const firstDone = once(createInterface({ input: writer.stdout as NonNullable<ChildProcess['stdout']> }), 'line');
    await firstDone;
    writer.kill('SIGKILL');
    await once(writer, 'exit');
  }
  const objects = (await filesBelow(root)).filter((path) => !path.endsWith('.partial'));
  t.ok(objects.length >= 3);
  for (const path of objects) t.equal((await stat(path)).size, 2_000_000, path);
});

test('dated objects of a minute share private files of their process', async (t) => {
  const root = join(await temporaryFolder(t), 'audio');
  const store = openStore(t, root);
  const keys = [10, 20, 30].map((second) => `${uuidv7({ msecs: MINUTE * 60_000 + second * 1000 })}-1`);
  for (const key of keys) await store.dated.x402.put(key, Buffer.from(key));
  const [audio = '', index = '', ...others] = (await filesBelow(root)).sort();
  t.strictSame(others, []);
  t.equal(dirname(audio), join(root, 'x402', String(MINUTE)));
  t.equal(await readFile(audio, 'utf8'), keys.join(''));
  t.equal(await readFile(index, 'utf8'), keys.map((key, at) => `${key} ${at * 38} 38\n`).join(''));
  for (const file of [audio, index]) t.equal((await stat(file)).mode & 0o777, 0o600);
  for (const folder of [dirname(audio), join(root, 'x402')]) t.equal((await stat(folder)).mode & 0o777, 0o700);
});

test('an index line that a dying process began does not count', async (t) => {
  const root = await temporaryFolder(t);
  const key = uuidv7({ msecs: MINUTE * 60_000 });
  await openStore(t, root).dated.prepaid.put(key, Buffer.from('0123456789'));
  const [index = ''] = (await filesBelow(root)).filter((path) => path.endsWith('.index'));
  const line = await readFile(index, 'utf8');
  for (const [torn, isFound] of [
    [line, true],
    [line.slice(0, -1), false],
    [line.slice(0, -3), false],
    [`${line}${line.slice(0, 36)}`, true],
  ] as const) {
    await writeFile(index, torn);
    const stored = await openStore(t, root).dated.prepaid.open(key);
    t.equal(stored && (await buffer(stored.stream)).toString(), isFound ? '0123456789' : undefined, torn);
  }
});

test('a symlink in place of a minute, or of its audio, is not followed', async (t) => {
  const [root, outside] = [await temporaryFolder(t), await temporaryFolder(t)];
  const store = openStore(t, root);
  const key = uuidv7({ msecs: MINUTE * 60_000 });
  await store.dated.x402.put(key, Buffer.from('inside'));
  const folder = join(root, 'x402', String(MINUTE));
  const [audio = ''] = (await filesBelow(root)).filter((path) => path.endsWith('.audio'));
  await rm(audio);
  await writeFile(join(outside, 'target'), 'outside');
  await symlink(join(outside, 'target'), audio);
  await assert.rejects(store.dated.x402.open(key), isStoreError('unavailable'));
  await rm(folder, { recursive: true });
  await symlink(outside, folder);
  await assert.rejects(store.dated.x402.open(key), isStoreError('unavailable'));
  await assert.rejects(store.dated.x402.put(key, Buffer.from('new')), isStoreError('unavailable'));
  await assert.rejects(store.dated.x402.deleteMinute(MINUTE), isStoreError('unavailable'));
  t.strictSame(await readdir(outside), ['target']);
});

test('what a killed writer was told to be stored is there, whole', async (t) => {
  const root = await temporaryFolder(t);
  const told: string[] = [];
  for (let round = 0; round < 3; round += 1) {
    const writer = spawnWriter([root, 'dated']);
    const lines = createInterface({ input: writer.stdout as NonNullable<ChildProcess['stdout']> });
    lines.on('line', (line) => void told.push(...line.split(',')));
    await once(lines, 'line');
    writer.kill('SIGKILL');
    await once(lines, 'close');
  }
  const store = openStore(t, root);
  t.ok(told.length >= 9);
  for (const key of told) {
    const audio = await buffer(((await store.dated.x402.open(key)) ?? assert.fail()).stream);
    t.equal(audio.length, 2_000_036);
    t.equal(audio.subarray(-36).toString(), key);
  }
});

test('after a failed sync nothing that its file holds counts as stored', async (t) => {
  const key = (second: number) => uuidv7({ msecs: MINUTE * 60_000 + second });
  const program = `
    const { setImmediate: tick } = require('node:timers/promises');
    const answers = [];
    require('node:fs').fdatasync = (_fd, answer) => void answers.push(answer);
    const { FileAudioStore } = await import('./dist/speech/store/file-store.js');
    const { x402 } = new FileAudioStore('${await temporaryFolder(t)}').dated;
    const put = (key) => x402.put(key, Buffer.from('x')).then(() => 'stored', ({ reason }) => reason);
    const first = put('${key(1)}');
    while (answers.length < 2) await tick();
    const second = put('${key(2)}');
    await tick();
    for (const answer of answers.splice(0)) answer(Object.assign(new Error('EIO'), { code: 'EIO' }));
    const answering = setInterval(() => answers.splice(0).forEach((answer) => answer(null)), 1);
    console.log(await first, await second, await put('${key(3)}'));
    clearInterval(answering);`;
  const child = startCommand(t, [process.execPath, '--eval', `(async () => {${program}})()`], {});
  await child.ended();
  t.equal(child.output(), 'unavailable unavailable stored\n');
});

test('leftovers of killed writers are removed after an hour', async (t) => {
  const root = await temporaryFolder(t);
  const old = join(root, 'old.partial');
  const young = join(root, 'young.partial');
  const foreign = join(root, 'README');
  for (const path of [old, young, foreign]) await writeFile(path, 'x');
  const twoHoursAgo = new Date(Date.now() - 7_200_000);
  for (const path of [old, foreign]) await utimes(path, twoHoursAgo, twoHoursAgo);
  const store = openStore(t, root);
  t.equal(await store.open('key'), undefined);
  t.ok((await readdir(root)).includes('old.partial'), 'only puts clean up');
  await store.put('key', Buffer.from('x'));
  t.strictSame((await readdir(root)).sort(), ['2c', 'README', 'young.partial']);
});

test('a symlink in place of a directory is not followed', async (t) => {
  const { root, store, file } = await newStoreWithObject(t);
  const outside = await temporaryFolder(t);
  const name = file.slice(root.length + 4);
  await writeFile(join(outside, name), 'outside');
  await rm(join(root, '2c'), { recursive: true });
  await symlink(outside, join(root, '2c'));
  await assert.rejects(store.put('key', Buffer.from('new')), isStoreError('unavailable'));
  await assert.rejects(store.open('key'), isStoreError('unavailable'));
  await assert.rejects(store.delete('key'), isStoreError('unavailable'));
  t.equal(await readFile(join(outside, name), 'utf8'), 'outside');
  t.strictSame(await readdir(outside), [name]);
});

test('a symlink in place of an object is not read, and writes replace it', async (t) => {
  const { store, file } = await newStoreWithObject(t);
  const target = join(await temporaryFolder(t), 'target');
  await writeFile(target, 'outside');
  for (const replace of [() => store.put('key', Buffer.from('new')), () => store.delete('key')]) {
    await rm(file, { force: true });
    await symlink(target, file);
    await assert.rejects(store.open('key'), isStoreError('unavailable'));
    await replace();
    t.equal(await readFile(target, 'utf8'), 'outside');
  }
  t.equal(await store.open('key'), undefined);
});

test('a non-file in place of an object is not read or waited for', async (t) => {
  const { store, file } = await newStoreWithObject(t);
  await rm(file);
  await mkdir(file);
  await assert.rejects(store.open('key'), isStoreError('unavailable'));
  await rm(file, { recursive: true });
  if (spawnSync('mkfifo', [file]).status !== 0) return t.plan(0, 'mkfifo is missing');
  await assert.rejects(store.open('key'), isStoreError('unavailable'));
});

test('a store that could not be created is created later', async (t) => {
  const directory = await temporaryFolder(t);
  const store = openStore(t, join(directory, 'mount', 'audio'));
  await writeFile(join(directory, 'mount'), '');
  await assert.rejects(store.put('key', Buffer.from('x')), isStoreError('unavailable'));
  await rm(join(directory, 'mount'));
  await store.put('key', Buffer.from('x'));
});

test('a full disk is reported, and the partial object is removed', async (t) => {
  await putOnDisk(t, 'size=1m', { reason: 'full', files: 0 });
});

test('a dated object that does not fit leaves its space to one that does', async (t) => {
  await putOnDisk(t, 'size=1m', { reason: 'full,stored,full', bytes: 500_000 }, 'dated once');
});

/** Puts 2 MB into a store on a file system of its own, in memory, and holds the writer's report against the expected. */
async function putOnDisk(t: Test, mountOptions: string, expected: object, mode = 'once'): Promise<void> {
  const root = await temporaryFolder(t);
  const mount = `mount -t tmpfs -o ${mountOptions} tmpfs "$0"`;
  if (spawnSync('unshare', ['-rm', 'sh', '-c', mount, root]).status !== 0) {
    return t.plan(0, 'it takes a mount in a user namespace, which this machine does not allow');
  }
  const command = `${mount} && exec "$1" "$2" "$0" "$3"`;
  const writer = spawn('unshare', ['-rm', 'sh', '-c', command, root, process.execPath, WRITER, mode], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  assert.deepEqual(JSON.parse((await buffer(writer.stdout)).toString()), expected);
}

function spawnWriter(args: string[]): ChildProcess {
  return spawn(process.execPath, [WRITER, ...args], { stdio: ['ignore', 'pipe', 'inherit'] });
}
