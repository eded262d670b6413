import { randomUUID } from 'node:crypto';
import { constants, type Stats } from 'node:fs';
import { type FileHandle, open, rename, rm, stat } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { followOwnLinks, isDescriptor } from '../../lib/own-links.ts';
import { ForeignFileError } from '../../lib/private-files.ts';
import { UsageError } from '../usage-error.ts';

const PUBLIC_MODE = 0o666;
const REASONS: Readonly<Record<string, string>> = {
  ENOENT: 'there is no such folder',
  ENOTDIR: 'there is no such folder',
  EACCES: 'no permission',
};

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
  const target = await followOwnLinks(path).catch((error) => {
    throw unwritable(path, error);
  });
  const there = await stat(target).catch(() => undefined);
  if (there?.isDirectory()) throw new UsageError(`--out ${path} is a folder. Name a file in it.`);
  // A device or a pipe can't be replaced by a file.
  const isPlace = there !== undefined && (!there.isFile() || isDescriptor(target));
  const fresh = isPlace ? target : join(dirname(target), `.${basename(target)}.${randomUUID()}.part`);
  const file = await (isPlace ? openPlace(target, there) : open(fresh, 'wx', PUBLIC_MODE)).catch((error) => {
    throw unwritable(path, error);
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

/** Opens a pipe or a device of this user or of the system; another user's would get the audio. */
async function openPlace(path: string, there: Stats): Promise<FileHandle> {
  if (isDescriptor(path)) return open(path, 'w');
  const own = process.geteuid?.();
  if (own !== undefined && ![own, 0].includes(there.uid)) {
    throw new ForeignFileError(`it belongs to user id ${there.uid}`);
  }
  const file = await open(path, constants.O_WRONLY | constants.O_NOFOLLOW);
  const { dev, ino } = await file.stat();
  if (dev === there.dev && ino === there.ino) return file;
  await file.close();
  throw new ForeignFileError('it was replaced');
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

const unwritable = (path: string, error: Error): UsageError =>
  new UsageError(`--out ${path} can't be written (${reasonOf(error)}). Name a file in a folder of yours.`);

function reasonOf(error: NodeJS.ErrnoException): string {
  if (error instanceof ForeignFileError) return error.message;
  const { code = 'unknown' } = error;
  return REASONS[code] ?? code;
}
