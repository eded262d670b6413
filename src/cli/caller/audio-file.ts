import { randomUUID } from 'node:crypto';
import { type FileHandle, open, realpath, rename, rm, stat } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { UsageError } from '../usage-error.ts';

const PUBLIC_MODE = 0o666;

/** Where audio goes: it is whole there, or not at all. */
export interface AudioFile {
  /** Writes it; tells how many bytes it has. */
  write(audio: ReadableStream<Uint8Array>): Promise<number>;
  /** Leaves nothing behind, unless the audio was written. */
  close(): Promise<void>;
}

/**
 * Opens a file for audio before anything is paid, so that a wrong path costs nothing.
 * @param path `-` for standard output, which gets the audio as it arrives
 * @throws UsageError when nothing can be written there
 */
export async function openAudioFile(path: string): Promise<AudioFile> {
  if (path === '-') return standardOutput();
  const target = await realpath(path).catch(() => path);
  const there = await stat(target).catch(() => undefined);
  if (there?.isDirectory()) throw new UsageError(`--out ${path} is a folder. Name a file in it.`);
  // A device or a pipe can't be replaced by a file.
  const isPlace = there !== undefined && !there.isFile();
  const fresh = isPlace ? target : join(dirname(target), `.${basename(target)}.${randomUUID()}.part`);
  const file = await open(fresh, isPlace ? 'w' : 'wx', PUBLIC_MODE).catch((error) => {
    throw new UsageError(`--out ${path} can't be written (${reasonOf(error)}). Name a file in a folder of yours.`);
  });
  return {
    write: async (audio) => {
      const size = await writeAll(file, audio);
      if (!isPlace) {
        await file.sync();
        await rename(fresh, target);
      }
      return size;
    },
    close: async () => {
      await file.close();
      if (!isPlace) await rm(fresh, { force: true });
    },
  };
}

function standardOutput(): AudioFile {
  if (process.stdout.isTTY) throw new UsageError('--out - would write audio to the terminal. Name a file, or a pipe.');
  return {
    write: async (audio) => {
      let size = 0;
      await pipeline(
        audio,
        async function* (chunks) {
          for await (const chunk of chunks) {
            size += chunk.length;
            yield chunk;
          }
        },
        process.stdout,
        { end: false },
      );
      return size;
    },
    close: async () => {},
  };
}

async function writeAll(file: FileHandle, audio: ReadableStream<Uint8Array>): Promise<number> {
  let size = 0;
  for await (const chunk of audio) {
    await file.writeFile(chunk);
    size += chunk.length;
  }
  return size;
}

const reasonOf = ({ code }: NodeJS.ErrnoException): string =>
  ({ ENOENT: 'there is no such folder', EACCES: 'no permission', ENOTDIR: 'there is no such folder' })[code ?? ''] ??
  code ??
  'unknown';
