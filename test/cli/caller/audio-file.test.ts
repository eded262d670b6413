import assert from 'node:assert/strict';
import { lstat, mkdtemp, readdir, readFile, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type Test, test } from 'tap';
import { openAudioFile } from '../../../src/cli/caller/audio-file.ts';

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
