import { readFile } from 'node:fs/promises';
import { dirname, extname } from 'node:path';
import { captionsOf, type SpokenPart } from '../../speech/captions.ts';
import { canFollow, describeSegments, type SegmentAudio, segmentAudio } from '../../speech/joined-mpeg.ts';
import { frameSeconds } from '../../speech/mpeg-frame.ts';
import { openAudioFile } from './audio-file.ts';
import { CommandError, EXIT } from './failure.ts';
import type { OutputStream } from './output.ts';

export const CHAPTER_MODES = ['tags', 'files'] as const;
export type ChapterMode = (typeof CHAPTER_MODES)[number];

export interface BookFiles {
  readonly out: string;
  /** One file with tags, or a file for each chapter. */
  readonly chapters: ChapterMode;
  /** Whether to write captions beside each file. */
  readonly captions: boolean;
}

export interface SpokenChapter {
  readonly title: string;
  readonly parts: readonly { readonly order: { readonly text: string }; readonly path: string }[];
}

/** The audio file of each chapter, or of all. */
export function pathsOf({ out, chapters }: BookFiles, count: number): string[] {
  if (chapters === 'tags') return [out];
  const digits = Math.max(2, String(count).length);
  const extension = extname(out);
  const stem = out.slice(0, out.length - extension.length);
  return Array.from({ length: count }, (_, at) => `${stem}-${String(at + 1).padStart(digits, '0')}${extension}`);
}

/** Joins the audio of the parts. Returns how many bytes of audio were written. */
export async function writeBook(
  chapters: readonly SpokenChapter[],
  files: BookFiles,
  stdout: OutputStream,
): Promise<number> {
  const groups = files.chapters === 'tags' ? [chapters] : chapters.map((chapter) => [chapter]);
  let bytes = 0;
  for (const [at, path] of pathsOf(files, chapters.length).entries()) {
    const { parts, timed, audio } = await joinParts(groups[at] as readonly SpokenChapter[]);
    const tag = files.chapters === 'files' ? titleTag(timed[0]?.title ?? '', at + 1, groups.length) : chapterTag(timed);
    bytes += await write(path, Buffer.concat([tag, audio]), stdout);
    const captionsPath = `${path.slice(0, path.length - extname(path).length)}.vtt`;
    if (files.captions) await write(captionsPath, Buffer.from(captionsOf(parts)), stdout);
  }
  return bytes;
}

async function joinParts(chapters: readonly SpokenChapter[]) {
  const last = chapters.at(-1)?.parts.at(-1);
  const segments: SegmentAudio[] = [];
  const parts: SpokenPart[] = [];
  const timed: TimedChapter[] = [];
  let end = 0;
  for (const chapter of chapters) {
    const start = end;
    for (const part of chapter.parts) {
      const segment = segmentAudio(await readFile(part.path), part === last);
      if (!canFollow(segments[0]?.header ?? segment.header, segment.header)) throw cannotJoin(part.path);
      const seconds = segment.frames * frameSeconds(segment.header);
      segments.push(segment);
      parts.push({ text: part.order.text, seconds, words: [] });
      end += seconds;
    }
    timed.push({ title: chapter.title, start, end });
  }
  const head = describeSegments(segments.map((segment) => ({ ...segment, sizeBytes: segment.bytes.length })));
  return { audio: Buffer.concat([head, ...segments.map(({ bytes }) => bytes)]), parts, timed };
}

function cannotJoin(path: string): CommandError {
  const remedy = `Delete ${path}, and run the same command: that part is bought and charged again. If this repeats, delete ${dirname(path)}: all parts are then bought and charged again.`;
  const message = `A part has another sampling rate or number of channels than the first, so they cannot be joined. ${remedy}`;
  return new CommandError({ code: 'NOT_JOINABLE', exit: EXIT.failed, message });
}

async function write(path: string, content: Uint8Array, stdout: OutputStream): Promise<number> {
  const file = await openAudioFile(path, stdout);
  try {
    const audio = new Blob([content as Uint8Array<ArrayBuffer>]).stream();
    return await file.write({ audio, bytes: async () => content, contentType: 'audio/mpeg' });
  } finally {
    await file.close();
  }
}

interface TimedChapter {
  readonly title: string;
  /** In seconds. */
  readonly start: number;
  readonly end: number;
}

const UTF8 = 3;
/** What a table of contents may list (its count is a byte). */
const MAX_LISTED = 255;
const IS_TOP_AND_ORDERED = 3;
const IS_ORDERED = 1;
/** The times say where a chapter is, not the bytes. */
const NO_OFFSET = 0xffff_ffff;

/** An ID3v2.4 tag with chapters; none for a single one. @see https://id3.org/id3v2-chapters-1.0 */
export function chapterTag(chapters: readonly TimedChapter[]): Buffer {
  if (chapters.length < 2) return Buffer.alloc(0);
  const ids = chapters.map((_, at) => `chapter${at + 1}`);
  const lists = Array.from({ length: Math.ceil(ids.length / MAX_LISTED) }, (_, at) => ({
    id: `contents${at + 1}`,
    ids: ids.slice(at * MAX_LISTED, (at + 1) * MAX_LISTED),
  }));
  const contents =
    lists.length === 1
      ? [contentsFrame('contents', IS_TOP_AND_ORDERED, ids)]
      : [
          contentsFrame(
            'contents',
            IS_TOP_AND_ORDERED,
            lists.map(({ id }) => id),
          ),
          ...lists.map((list) => contentsFrame(list.id, IS_ORDERED, list.ids)),
        ];
  const frames = chapters.map(({ title, start, end }, at) => {
    const times = [start * 1000, end * 1000, NO_OFFSET, NO_OFFSET].map(uint32);
    return frame('CHAP', Buffer.from(`${ids[at]}\0`), ...times, textFrame('TIT2', title));
  });
  return tagOf([...contents, ...frames]);
}

/** An ID3v2.4 tag with a title and a position among the files of a book. */
const titleTag = (title: string, position: number, count: number): Buffer =>
  tagOf([textFrame('TIT2', title), textFrame('TRCK', `${position}/${count}`)]);

const contentsFrame = (id: string, flags: number, children: readonly string[]): Buffer =>
  frame(
    'CTOC',
    Buffer.from(`${id}\0`),
    Buffer.of(flags, children.length),
    Buffer.from(children.map((child) => `${child}\0`).join('')),
  );

/** A text frame needs a text. */
const textFrame = (id: string, text: string): Buffer =>
  text === '' ? Buffer.alloc(0) : frame(id, Buffer.of(UTF8), Buffer.from(text));

function frame(id: string, ...content: readonly Buffer[]): Buffer {
  const body = Buffer.concat(content);
  return Buffer.concat([Buffer.from(id), synchsafe(body.length), Buffer.of(0, 0), body]);
}

function tagOf(frames: readonly Buffer[]): Buffer {
  const body = Buffer.concat(frames);
  return Buffer.concat([Buffer.from('ID3\x04\0\0'), synchsafe(body.length), body]);
}

function uint32(number: number): Buffer {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32BE(Math.round(number));
  return bytes;
}

/** Seven bits in each byte, so that nothing in it looks like a frame of audio. */
const synchsafe = (size: number): Buffer =>
  Buffer.of((size >> 21) & 0x7f, (size >> 14) & 0x7f, (size >> 7) & 0x7f, size & 0x7f);
