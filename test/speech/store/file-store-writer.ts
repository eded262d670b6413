/**
 * Writes 2 MB objects into the store of a directory, for tests that kill the writer or give it a disk of its own.
 * `forever` prints a line after each object; `once` prints how the one put ended and how many files are there. `dated` and
 * `dated once` do so with dated objects, and print their keys or what their files have in all.
 */
import { readdir, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { v7 as uuidv7 } from 'uuid';
import { StoreError } from '../../../src/speech/store/audio-store.ts';
import { FileAudioStore } from '../../../src/speech/store/file-store.ts';

const [directory = '', mode] = process.argv.slice(2);
const store = new FileAudioStore(directory);
const audio = Buffer.alloc(2_000_000, 'audio');

const reasonOf = (put: Promise<void>) =>
  put.then(
    () => 'stored',
    (error) => (error instanceof StoreError ? error.reason : String(error)),
  );

if (mode === 'dated once') {
  const reasons = [audio, audio.subarray(0, 500_000), audio].map((each) =>
    reasonOf(store.dated.x402.put(uuidv7(), each)),
  );
  const reason = (await Promise.all(reasons)).join();
  const entries = await readdir(directory, { recursive: true, withFileTypes: true });
  const files = entries.filter((entry) => entry.isFile() && entry.name.endsWith('.audio'));
  const sizes = files.map(async ({ parentPath, name }) => (await stat(join(parentPath, name))).size);
  console.log(JSON.stringify({ reason, bytes: (await Promise.all(sizes)).reduce((sum, size) => sum + size, 0) }));
} else if (mode === 'dated') {
  for (;;) {
    const keys = ['a', 'b', 'c'].map(() => uuidv7());
    await Promise.all(keys.map((key) => store.dated.x402.put(key, Buffer.concat([audio, Buffer.from(key)]))));
    console.log(keys.join());
  }
} else if (mode === 'once') {
  const reason = await reasonOf(store.put('key', audio));
  const entries = await readdir(directory, { recursive: true, withFileTypes: true });
  console.log(JSON.stringify({ reason, files: entries.filter((entry) => entry.isFile()).length }));
} else {
  for (let count = 0; ; count += 1) {
    await Promise.all(['a', 'b', 'c'].map((name) => store.put(`${process.pid}/${count}${name}`, audio)));
    console.log(count);
  }
}
