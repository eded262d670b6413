import { type Handler, Parser } from 'htmlparser2';
import { marked } from 'marked';

export const TEXT_FORMATS = ['markdown', 'html', 'off'] as const;

export interface Cleaning {
  /** Of the text; `off` leaves it as it is. */
  readonly format: (typeof TEXT_FORMATS)[number];
  /** False leaves emoji out. */
  readonly emoji: boolean;
}

const names = (list: string) => new Set(list.split(' '));
/** Code is not for listeners. */
const SILENT = names('head iframe math noscript object pre script style svg template');
const BLOCKS = names(
  'address article aside blockquote body br caption dd details div dl dt fieldset figcaption figure footer form h1 h2 h3 h4 ' +
    'h5 h6 header hr li main nav ol p pre section summary table tr ul',
);
/** They are read with a pause after them. */
const SENTENCES = names('caption dt figcaption h1 h2 h3 h4 h5 h6 li tr');
const HEADING = /^h([1-6])$/;
/** The flag v needs a newer target of the compiler than Node.js needs. */
const EMOJI_PATTERN = ' ?\\p{RGI_Emoji}';
const EMOJI = new RegExp(EMOJI_PATTERN, 'gv');

/**
 * What a listener should hear of a marked-up text: the words of headings, lists, links and images, and tables row by row.
 * Code blocks are left out, and an address is read as its host.
 */
export function cleanText(text: string, cleaning: Cleaning): string {
  const { format, emoji } = cleaning;
  if (format === 'off') return emoji ? text : tidy([withoutEmoji(text)]);
  return tidy(readLines(text, cleaning).lines);
}

export interface Chapter {
  readonly title: string;
  readonly text: string;
}

/** The text as `cleanText` returns it, cut at the headings of its chapters. What is before the first has no title. */
export function chaptersOf(text: string, cleaning: Cleaning): Chapter[] {
  if (cleaning.format === 'off') return [{ title: '', text: cleanText(text, cleaning) }];
  const { lines, marks } = readLines(text, cleaning);
  const headings = marks.filter(({ title }) => title !== '');
  return cutAt(lines, atMainLevel(headings)).map(({ mark, text }) => ({ title: mark?.title ?? '', text }));
}

/** The text of an HTML document, cut at the elements with these ids. What is before the first has an empty one. */
export function cutAtIds(html: string, emoji: boolean, ids: ReadonlySet<string>) {
  const { lines, marks } = readLines(html, { format: 'html', emoji }, ids);
  const cuts = marks.filter(({ id }) => id !== '' && ids.has(id));
  return cutAt(lines, cuts).map(({ mark, text }) => ({ id: mark?.id ?? '', text }));
}

/** Down to the first level that has several: a single one above is the title of the whole. */
export function atMainLevel<Item extends { readonly level: number }>(items: readonly Item[]): Item[] {
  const levels = items.map(({ level }) => level).sort((one, other) => one - other);
  const main = levels.find((level, index) => levels[index + 1] === level) ?? levels[0] ?? 0;
  return items.filter(({ level }) => level <= main);
}

/** Where a heading, or an element with an asked id, begins. */
interface Mark {
  readonly line: number;
  readonly level: number;
  readonly id: string;
  title: string;
}

interface Lines {
  readonly lines: readonly string[];
  readonly marks: readonly Mark[];
}

function cutAt(lines: readonly string[], marks: readonly Mark[]) {
  return [undefined, ...marks]
    .map((mark, index) => ({ mark, text: tidy(lines.slice(mark?.line ?? 0, marks[index]?.line)) }))
    .filter(({ text }) => text !== '');
}

const NO_IDS: ReadonlySet<string> = new Set();

function readLines(text: string, { format, emoji }: Cleaning, ids = NO_IDS): Lines {
  const plain = emoji ? (piece: string) => piece : withoutEmoji;
  const lines: string[] = [];
  const marks: Mark[] = [];
  let line = '';
  let linkStart = 0;
  let silent = 0;
  const endLine = () => {
    lines.push(line);
    line = '';
    linkStart = 0;
  };
  const handler: Partial<Handler> = {
    onopentag(name, { alt, id = '' }) {
      const isAsked = id !== '' && ids.has(id);
      if (BLOCKS.has(name) || isAsked) endLine();
      if (SILENT.has(name)) silent += 1;
      if (silent > 0) return;
      const [, level] = HEADING.exec(name) ?? [];
      if (level !== undefined || isAsked) marks.push({ line: lines.length, level: Number(level), id, title: '' });
      if (name === 'a') linkStart = line.length;
      if (name === 'img' && alt) line += ` ${plain(alt)} `;
      if ((name === 'td' || name === 'th') && line.trim() !== '') line = `${line.trimEnd()}, `;
    },
    ontext(piece) {
      if (silent === 0) line += plain(piece).replaceAll(/\s+/g, ' ');
    },
    onclosetag(name) {
      if (SILENT.has(name)) silent -= 1;
      if (silent > 0) return;
      if (name === 'a') line = line.slice(0, linkStart) + hostOf(line.slice(linkStart));
      const heading = HEADING.test(name) ? marks.at(-1) : undefined;
      if (heading) heading.title = tidy([...lines.slice(heading.line), line]).replaceAll('\n', ' ');
      if (SENTENCES.has(name) && /[\p{L}\p{N},] *$/u.test(line)) line = line.replace(/[, ]*$/, '.');
      if (BLOCKS.has(name)) endLine();
    },
  };
  // As in XHTML.
  const parser = new Parser(handler, { recognizeSelfClosing: true });
  parser.end(format === 'html' ? text : marked.parse(text, { async: false }));
  endLine();
  return { lines, marks };
}

const withoutEmoji = (text: string): string => text.replaceAll(EMOJI, '');

const hostOf = (text: string): string =>
  /^https?:\/\/\S+$/.test(text) && URL.canParse(text) ? new URL(text).host : text;

const tidy = (lines: readonly string[]): string =>
  lines
    .flatMap((line) => line.split('\n'))
    .map((line) => line.replaceAll(/\s+/g, ' ').trim())
    .filter(Boolean)
    .join('\n');
