import type { SpokenWord } from './provider.ts';
import { hasWord } from './split-text.ts';

/** Where a word begins in its text, in characters; and when it starts and ends in its audio, in seconds. */
export type PlacedWord = readonly [offset: number, start: number, end: number];

export interface SpokenPart {
  readonly text: string;
  readonly seconds: number;
  /** In order; empty if nobody knows. */
  readonly words: readonly PlacedWord[];
}

const sentences = new Intl.Segmenter(undefined, { granularity: 'sentence' });
const ESCAPED: Readonly<Record<string, string>> = { '&': '&amp;', '<': '&lt;', '>': '&gt;' };
/** A server writes what it speaks: of "$5" that is "five dollars". The next word that it left as it was is near. */
const MAX_UNKNOWN_CHARACTERS = 50;

/** Finds spoken words in the text, and leaves out those that are not there. */
export function placeWords(text: string, words: readonly SpokenWord[]): PlacedWord[] {
  const placed: PlacedWord[] = [];
  let from = 0;
  for (const { word, start, end } of words) {
    const at = text.indexOf(word, from);
    const isInOrder = start > (placed.at(-1)?.[1] ?? -1) && end > start;
    if (!hasWord(word) || !isInOrder || at < 0 || at > from + MAX_UNKNOWN_CHARACTERS) continue;
    placed.push([at, start, end]);
    from = at + word.length;
  }
  return placed;
}

/** WebVTT with a cue for each sentence. Where the times of its words are known, they stand before them. */
export function captionsOf(parts: readonly SpokenPart[]): string {
  const cues: string[] = [];
  let start = 0;
  for (const part of parts) {
    if (part.seconds > 0) cues.push(...cuesOf(part, start));
    start += part.seconds;
  }
  return ['WEBVTT\n', ...cues].join('\n');
}

function cuesOf({ text, seconds, words }: SpokenPart, partStart: number): string[] {
  // The segmenter ends a sentence at each line feed.
  const found = [...sentences.segment(text.replace(/[\r\n]/g, ' '))]
    .filter(({ segment }) => segment.trim() !== '')
    .map(({ segment: { length }, index: from }) => {
      return { from, to: from + length, own: words.filter(([at]) => at >= from && at < from + length) };
    });
  const isTimed = found.every(({ own }) => own.length > 0);
  return found.map(({ from, to, own }) => {
    // Without times, a sentence's share of the whole is that of its characters.
    const shareAt = (at: number) => (seconds * at) / text.length;
    const start = isTimed ? (own[0] as PlacedWord)[1] : shareAt(from);
    const end = isTimed ? (own.at(-1) as PlacedWord)[2] : shareAt(to);
    const marks = isTimed ? own.slice(1) : [];
    const first = escaped(text.slice(from, marks[0]?.[0] ?? to));
    const others = marks.map(([at, since], index) => {
      return `<${timestamp(partStart + since)}>${escaped(text.slice(at, marks[index + 1]?.[0] ?? to))}`;
    });
    const line = [first, ...others].join('').trim().replace(/\s+/g, ' ');
    return `${timestamp(partStart + start)} --> ${timestamp(partStart + end)}\n${line}\n`;
  });
}

const escaped = (text: string): string => text.replace(/[&<>]/g, (sign) => ESCAPED[sign] ?? sign);

/** `hours:minutes:seconds.milliseconds` */
function timestamp(seconds: number): string {
  const ms = Math.round(seconds * 1000);
  const two = (number: number) => String(Math.floor(number)).padStart(2, '0');
  return `${two(ms / 3_600_000)}:${two((ms / 60_000) % 60)}:${two((ms / 1000) % 60)}.${String(ms % 1000).padStart(3, '0')}`;
}
