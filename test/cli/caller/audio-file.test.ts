import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { lchown, lstat, mkdir, mkdtemp, readdir, readFile, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type Test, test } from 'tap';
import { openAudioFile } from '../../../src/cli/caller/audio-file.ts';
import { SpeechFolder } from '../../../src/mcp/speech-folder.ts';

async function scratch(t: Test): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'speechgate-audio-'));
  t.teardown(() => rm(folder, { recursive: true, force: true }));
  return folder;
}

/** Audio in two parts, the second of which may fail. */
const audio = (fault?: Error): ReadableStream<Uint8Array> =>
  new ReadableStream({
    start: (controller) => controller.enqueue(Buffer.from('half ')),
    pull: (controller) => {
      if (fault) return controller.error(fault);
      controller.enqueue(Buffer.from('whole'));
      controller.close();
    },
  });

test('audio replaces a file when it is whole, also behind a link', async (t) => {
  const folder = await scratch(t);
  const path = join(folder, 'hello.mp3');
  await writeFile(path, 'former');
  await symlink(path, join(folder, 'link.mp3'));
  const file = await openAudioFile(join(folder, 'link.mp3'));
  assert.equal(await file.write(audio()), 10);
  await file.close();
  assert.equal(await readFile(path, 'utf8'), 'half whole');
  assert.ok((await lstat(join(folder, 'link.mp3'))).isSymbolicLink());
  assert.deepEqual((await readdir(folder)).sort(), ['hello.mp3', 'link.mp3']);
});

test('audio that breaks off leaves the file that was there, and nothing else', async (t) => {
  const folder = await scratch(t);
  const path = join(folder, 'hello.mp3');
  await writeFile(path, 'former');
  const file = await openAudioFile(path);
  await assert.rejects(file.write(audio(new Error('broken off'))), /broken off/);
  await file.close();
  assert.equal(await readFile(path, 'utf8'), 'former');
  assert.deepEqual(await readdir(folder), ['hello.mp3']);
});

test('a device is written to and never replaced', { skip: process.platform === 'win32' }, async () => {
  const file = await openAudioFile('/dev/null');
  assert.equal(await file.write(audio()), 10);
  await file.close();
  assert.ok((await lstat('/dev/null')).isCharacterDevice());
});

const isRoot = process.geteuid?.() === 0;
const OTHER_UID = 54_321;

test('a link or a pipe that another user has planted is neither followed nor written to', {
  skip: !isRoot && 'only root can plant what belongs to another user',
}, async (t) => {
  const folder = await scratch(t);
  const secret = join(folder, 'secret');
  await mkdir(join(folder, 'home'));
  for (const [name, target] of [
    ['file.mp3', secret],
    ['new.mp3', join(folder, 'home', 'new')],
    ['folder', join(folder, 'home')],
  ] as const) {
    await symlink(target, join(folder, name));
    await lchown(join(folder, name), OTHER_UID, OTHER_UID);
  }
  await symlink(join(folder, 'file.mp3'), join(folder, 'own-to-foreign.mp3'));
  await writeFile(secret, 'former');
  execFileSync('mkfifo', [join(folder, 'pipe')]);
  await lchown(join(folder, 'pipe'), OTHER_UID, OTHER_UID);
  for (const name of ['file.mp3', 'new.mp3', 'folder/in.mp3', 'own-to-foreign.mp3', 'pipe']) {
    await assert.rejects(
      openAudioFile(join(folder, name)),
      ({ message }: Error) => message.startsWith('--out ') && message.includes(`user id ${OTHER_UID}`),
      name,
    );
  }
  await assert.rejects(SpeechFolder.open(join(folder, 'folder')), /is a link of user id/);
  assert.equal(await readFile(secret, 'utf8'), 'former');
  assert.deepEqual(await readdir(join(folder, 'home')), []);
});

test('an own pipe, standard output by its path and relative links are written to', {
  skip: process.platform === 'win32',
}, async (t) => {
  const folder = await scratch(t);
  const pipe = join(folder, 'pipe');
  execFileSync('mkfifo', [pipe]);
  await mkdir(join(folder, 'a'));
  await symlink('../pipe', join(folder, 'a', 'link'));
  const read = readFile(pipe, 'utf8');
  const file = await openAudioFile(join(folder, 'a', '..', 'a', 'link'));
  await file.write(audio());
  await file.close();
  assert.equal(await read, 'half whole');
  for (const path of ['/dev/stdout', '/dev/fd/1']) {
    const script = `import { openAudioFile } from ${JSON.stringify(new URL('../../../src/cli/caller/audio-file.ts', import.meta.url))};
      const file = await openAudioFile(${JSON.stringify(path)});
      await file.write(new Blob(['heard']).stream());
      await file.close();`;
    // Node.js itself gives children sockets, which have no path.
    const piped = '"$0" --import tsx --input-type=module -e "$1" | cat';
    const out = execFileSync('sh', ['-c', piped, process.execPath, script]);
    assert.equal(String(out), 'heard', path);
  }
});
