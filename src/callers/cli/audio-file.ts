import { randomUUID } from 'node:crypto';
import { constants, type Stats } from 'node:fs';
import { type FileHandle, open, rename, rm, stat, writeFile } from 'node:fs/promises';
import { basename, dirname, extname, join } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { UsageError } from '../../lib/arguments.ts';
import { closeOnFailure } from '../../lib/close-on-failure.ts';
import { ForeignFileError, followOwnLinks, isDescriptor } from '../../lib/private-files.ts';
import type { Speech } from '../client/index.ts';
import type { OutputStream } from './output.ts';

const PUBLIC_MODE = 0o666;
const NOTHING_WRITTEN = 'Nothing was written.';
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

/** Call before the payment, so that a wrong path costs nothing. @param path `-` for standard output @param end of errors */
export async function openAudioFile(path: string, stdout: OutputStream, end = NOTHING_WRITTEN): Promise<AudioFile> {
  if (path === '-') return standardOutput(stdout, end);
  const target = await followOwnLinks(path).catch((error) => {
    throw unwritable(path, error, end);
  });
  const existing = await stat(target).catch(() => undefined);
  if (existing?.isDirectory()) throw new UsageError(`--out ${path} is a folder. Name a file in it. ${end}`);
  // A device or pipe is written directly, not replaced by a file.
  const isDevice = existing !== undefined && (!existing.isFile() || isDescriptor(target));
  const temporary = isDevice ? target : join(dirname(target), `.${basename(target)}.${randomUUID()}.part`);
  const file = await (isDevice ? openDevice(target, existing) : open(temporary, 'wx', PUBLIC_MODE)).catch((error) => {
    throw unwritable(path, error, end);
  });
  return {
    write: async (speech) => {
      const chunks = isDevice ? flowOf(speech) : [await speech.bytes()];
      const size = await countBytes(chunks, (counted) => writeFile(file, counted));
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
    throw new ForeignFileError(`another user owns it, with the user id ${existing.uid}`);
  }
  const file = await open(path, constants.O_WRONLY | constants.O_NOFOLLOW);
  await closeOnFailure(file, async () => {
    const { dev, ino } = await file.stat();
    if (dev !== existing.dev || ino !== existing.ino) throw new ForeignFileError('another program replaced it');
  });
  return file;
}

function standardOutput(stdout: OutputStream, end: string): AudioFile {
  if (stdout.isTTY)
    throw new UsageError(`--out - would write audio to the terminal. Name a file, or redirect the output. ${end}`);
  const writeTo = (chunks: AsyncIterable<Uint8Array>) => pipeline(chunks, stdout, { end: false });
  return { write: (speech) => countBytes(flowOf(speech), writeTo), close: async () => {} };
}

/** A WAV is not written before its sizes are known, because its output may be a file. */
async function* flowOf({ audio, bytes, contentType }: WrittenSpeech): AsyncIterable<Uint8Array> {
  if (contentType === 'audio/wav') yield await bytes();
  else yield* audio;
}

/** Returns how many bytes were written. */
async function countBytes(
  chunks: Iterable<Uint8Array> | AsyncIterable<Uint8Array>,
  write: (counted: AsyncIterable<Uint8Array>) => Promise<void>,
): Promise<number> {
  let size = 0;
  const counted = async function* () {
    for await (const chunk of chunks) {
      size += chunk.length;
      yield chunk;
    }
  };
  await write(counted());
  return size;
}

const FORMATS = { 'audio/mpeg': 'MP3', 'audio/wav': 'WAV' } as const;
export const EXTENSIONS = { 'audio/mpeg': '.mp3', 'audio/wav': '.wav' } as const;
const AUDIO_EXTENSION = /^\.(mp3|wav|wave|ogg|oga|opus|flac|aac|m4a)$/i;

/** A sentence if the file's extension is that of another format; otherwise empty. */
export function otherFormat(path: string, contentType: Speech['contentType']): string {
  const extension = extname(path);
  const isRight = !AUDIO_EXTENSION.test(extension) || extension.toLowerCase() === EXTENSIONS[contentType];
  return isRight
    ? ''
    : `. The audio is ${FORMATS[contentType]}, so give the file the ending ${EXTENSIONS[contentType]}`;
}

const unwritable = (path: string, error: Error, end: string): UsageError =>
  new UsageError(`--out ${path} is not writable (${reasonOf(error)}). Name a file in a folder of your own. ${end}`);

function reasonOf(error: NodeJS.ErrnoException): string {
  if (error instanceof ForeignFileError) return error.message;
  const { code = 'unknown' } = error;
  return REASONS[code] ?? code;
}
