/**
 * Writes 2 MB objects into the store of a directory, for tests that kill the writer or give it a disk of its own.
 * `forever` prints a line after each object; `once` prints how the one put ended and how many files are there.
 */
import { readdir } from 'node:fs/promises';
import { StoreError } from '../../../src/speech/store/audio-store.ts';
import { FileAudioStore } from '../../../src/speech/store/file-store.ts';

const [directory = '', mode] = process.argv.slice(2);
const store = new FileAudioStore(directory);
const audio = Buffer.alloc(2_000_000, 'audio');

if (mode === 'once') {
  const reason = await store.put('key', audio).then(
    () => 'stored',
    (error) => (error instanceof StoreError ? error.reason : String(error)),
  );
  const entries = await readdir(directory, { recursive: true, withFileTypes: true });
  console.log(JSON.stringify({ reason, files: entries.filter((entry) => entry.isFile()).length }));
} else {
  for (let count = 0; ; count += 1) {
    await Promise.all(['a', 'b', 'c'].map((name) => store.put(`${process.pid}/${count}${name}`, audio)));
    console.log(count);
  }
}
