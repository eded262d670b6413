/** Parts that join to the text, or where it has no place to split: there begins what is longer than the limit. */
export type SplitText =
  | { readonly outcome: 'split'; readonly parts: readonly string[] }
  | { readonly outcome: 'unsplittable'; readonly offset: number };

const WORD = /[\p{L}\p{N}]/u;

/** Whether it has something to speak. Many servers answer a text such as "…" with an error or an empty body. */
export const hasWord = (text: string): boolean => WORD.test(text);

const sentences = new Intl.Segmenter(undefined, { granularity: 'sentence' });
const words = new Intl.Segmenter(undefined, { granularity: 'word' });
const graphemes = new Intl.Segmenter(undefined, { granularity: 'grapheme' });

/** Shows whether a sentence, word or number goes on behind the limit. */
const LOOKAHEAD = 100;
const PARAGRAPH_END = /(?:\n\s*\n|\u2029)\s*/g;
const CLAUSE_END = /[,;:—–)\]…]["'”’»]*\s+|[、；：，]|\n\s*/gu;
const SPACE = /\s/g;
/** A sentence rarely ends behind `Dr.`, `Mrs.` or `e.g.`. */
const ABBREVIATION = /(?<!\p{L})(?:\p{Lu}\p{Ll}{0,3}|\p{Ll}\.\p{Ll})\.\s+$/u;
const UNBREAKABLE = [
  // Web addresses.
  /(?:[a-z][a-z0-9+.-]{0,20}:\/\/|www\.)[!-~\p{Ll}\p{Lu}\p{M}]+(?<![.,;:!?'")\]])/giu,
  // Numbers with their separators; spaces separate thousands.
  /\p{Nd}+(?:[.,:'’/\u00a0\u2009\u202f-]\p{Nd}+)*/gu,
  /(?<!\p{Nd})\p{Nd}{1,3}(?: \p{Nd}{3}){1,4}(?!\p{Nd})/gu,
];

/**
 * Splits at the last end of a paragraph within the limit, else of a sentence, a clause or a word: never inside a
 * grapheme, a number or a web address.
 * @param limit in characters (R1), of each part
 */
export const splitText = (text: string, limit: number): SplitText => split(text, limit, () => limit);

/**
 * Splits so that the first sentence is spoken alone. Each further part has whole sentences, and is at most twice as long as
 * the text before it: it can be spoken while that is heard.
 */
export const splitForListener = (text: string, limit: number): SplitText =>
  split(text, limit, (start) =>
    Math.min(limit, Math.max(2 * start, firstSentence(text.slice(start, start + limit + LOOKAHEAD)))),
  );

function split(text: string, limit: number, limitAt: (start: number) => number): SplitText {
  const parts: string[] = [];
  for (let start = 0; start < text.length; start += parts.at(-1)?.length ?? 0) {
    const rest = text.slice(start, start + limit + LOOKAHEAD);
    const lengthWithin = (most: number) => (rest.length <= most ? rest.length : splitAt(rest, most));
    const length = lengthWithin(limitAt(start)) || lengthWithin(limit);
    if (length === 0) return { outcome: 'unsplittable', offset: start };
    parts.push(rest.slice(0, length));
  }
  return { outcome: 'split', parts };
}

/** Length of the first sentence, with the space behind it. */
function firstSentence(window: string): number {
  const canSplit = splitPlaces(window);
  for (const { index, segment } of sentences.segment(unwrapped(window))) {
    const end = index + segment.length;
    if (canSplit(end) && !isAbbreviation(window, end)) return end;
  }
  return window.length;
}

/** The segmenter ends a sentence at each line feed. */
const unwrapped = (text: string): string => text.replace(/[\r\n]/g, ' ');

const isAbbreviation = (text: string, end: number): boolean =>
  ABBREVIATION.test(text.slice(Math.max(0, end - 20), end));

function splitPlaces(window: string): (at: number) => boolean {
  const kept = UNBREAKABLE.flatMap((pattern) => [...window.matchAll(pattern)]);
  const clusters = graphemes.segment(window);
  return (at) =>
    clusters.containing(at)?.index === at &&
    !kept.some(({ 0: { length }, index }) => index < at && at < index + length);
}

/** Where to split the beginning of a text; 0 for nowhere. */
function splitAt(window: string, limit: number): number {
  const canSplit = splitPlaces(window);
  const isAllowed = (at: number) => at <= limit && canSplit(at);
  const lastMatch = (pattern: RegExp) =>
    [...window.matchAll(pattern)].map(({ 0: { length }, index }) => index + length).findLast(isAllowed) ?? 0;
  return (
    lastMatch(PARAGRAPH_END) ||
    lastBoundary(sentences.segment(unwrapped(window)), limit, (at) => isAllowed(at) && !isAbbreviation(window, at)) ||
    lastMatch(CLAUSE_END) ||
    lastMatch(SPACE) ||
    lastBoundary(words.segment(window), limit, isAllowed)
  );
}

function lastBoundary(segments: Intl.Segments, limit: number, isAllowed: (at: number) => boolean): number {
  let at = segments.containing(limit)?.index ?? 0;
  while (at > 0 && !isAllowed(at)) at = segments.containing(at - 1)?.index ?? 0;
  return at;
}
