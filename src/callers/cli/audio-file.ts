import { randomUUID } from 'node:crypto';
import { constants, type Stats } from 'node:fs';
import { type FileHandle, open, rename, rm, stat } from 'node:fs/promises';
import { basename, dirname, extname, join } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { closeOnFailure } from '../../lib/close-on-failure.ts';
import { followOwnLinks, isDescriptor } from '../../lib/own-links.ts';
import { ForeignFileError } from '../../lib/private-files.ts';
import { UsageError } from '../../lib/usage-error.ts';
import type { Speech } from '../client/index.ts';
import type { OutputStream } from './output.ts';

const PUBLIC_MODE = 0o666;
const REASONS: Readonly<Record<string, string>> = {
  ENOENT: 'there is no such folder',
  ENOTDIR: 'there is no such folder',
  EACCES: 'no permission',
};

type WrittenSpeech = Pick<Speech, 'audio' | 'bytes' | 'contentType'>;

export interface AudioFile {
  write(speech: WrittenSpeech): Promise<number>;
  close(): Promise<void>;
}

/** Call before the payment, so that a wrong path costs nothing. @param path `-` for standard output */
export async function openAudioFile(path: string, stdout: OutputStream): Promise<AudioFile> {
  if (path === '-') return standardOutput(stdout);
  const target = await followOwnLinks(path).catch((error) => {
    throw unwritable(path, error);
  });
  const existing = await stat(target).catch(() => undefined);
  if (existing?.isDirectory()) throw new UsageError(`--out ${path} is a folder. Name a file in it.`);
  // A device or pipe is written directly, not replaced by a file.
  const isDevice = existing !== undefined && (!existing.isFile() || isDescriptor(target));
  const temporary = isDevice ? target : join(dirname(target), `.${basename(target)}.${randomUUID()}.part`);
  const file = await (isDevice ? openDevice(target, existing) : open(temporary, 'wx', PUBLIC_MODE)).catch((error) => {
    throw unwritable(path, error);
  });
  return {
    write: async (speech) => {
      const size = await writeAll(file, isDevice ? flowOf(speech) : [await speech.bytes()]);
      if (!isDevice) {
        await file.sync();
        await rename(temporary, target);
      }
      return size;
    },
    close: async () => {
      await file.close();
      if (!isDevice) await rm(temporary, { force: true });
    },
  };
}

/** Refuses a pipe or device of another user, who would get the audio. */
async function openDevice(path: string, existing: Stats): Promise<FileHandle> {
  if (isDescriptor(path)) return open(path, 'w');
  const own = process.geteuid?.();
  if (own !== undefined && ![own, 0].includes(existing.uid)) {
    throw new ForeignFileError(`it belongs to user id ${existing.uid}`);
  }
  const file = await open(path, constants.O_WRONLY | constants.O_NOFOLLOW);
  await closeOnFailure(file, async () => {
    const { dev, ino } = await file.stat();
    if (dev !== existing.dev || ino !== existing.ino) throw new ForeignFileError('it was replaced');
  });
  return file;
}

function standardOutput(stdout: OutputStream): AudioFile {
  if (stdout.isTTY)
    throw new UsageError('--out - would write audio to the terminal. Name a file, or redirect the output.');
  return {
    write: async (speech) => {
      let size = 0;
      await pipeline(
        flowOf(speech),
        async function* (chunks) {
          for await (const chunk of chunks) {
            size += chunk.length;
            yield chunk;
          }
        },
        stdout,
        { end: false },
      );
      return size;
    },
    close: async () => {},
  };
}

/** A WAV is not written before its sizes are known, because its output may be a file. */
async function* flowOf({ audio, bytes, contentType }: WrittenSpeech): AsyncIterable<Uint8Array> {
  if (contentType === 'audio/wav') yield await bytes();
  else yield* audio;
}

async function writeAll(file: FileHandle, chunks: AsyncIterable<Uint8Array> | Iterable<Uint8Array>): Promise<number> {
  let size = 0;
  for await (const chunk of chunks) {
    await file.writeFile(chunk);
    size += chunk.length;
  }
  return size;
}

const FORMATS = { 'audio/mpeg': 'MP3', 'audio/wav': 'WAV' } as const;
export const EXTENSIONS = { 'audio/mpeg': '.mp3', 'audio/wav': '.wav' } as const;
const AUDIO_EXTENSION = /^\.(mp3|wav|wave|ogg|oga|opus|flac|aac|m4a)$/i;

/** A sentence if the file's extension is that of another format; otherwise empty. */
export function otherFormat(path: string, contentType: Speech['contentType']): string {
  const extension = extname(path);
  const isRight = !AUDIO_EXTENSION.test(extension) || extension.toLowerCase() === EXTENSIONS[contentType];
  return isRight ? '' : `. The audio is ${FORMATS[contentType]}: rename the file to *${EXTENSIONS[contentType]}`;
}

const unwritable = (path: string, error: Error): UsageError =>
  new UsageError(`--out ${path} is not writable (${reasonOf(error)}). Name a file in a folder of yours.`);

function reasonOf(error: NodeJS.ErrnoException): string {
  if (error instanceof ForeignFileError) return error.message;
  const { code = 'unknown' } = error;
  return REASONS[code] ?? code;
}
