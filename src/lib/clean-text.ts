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
/** The flag v needs a newer target of the compiler than Node.js needs. */
const EMOJI_PATTERN = ' ?\\p{RGI_Emoji}';
const EMOJI = new RegExp(EMOJI_PATTERN, 'gv');

/**
 * What a listener should hear of a marked-up text: the words of headings, lists, links and images, and tables row by row.
 * Code blocks are left out, and an address is read as its host.
 */
export function cleanText(text: string, { format, emoji }: Cleaning): string {
  const plain = (piece: string) => (emoji ? piece : piece.replaceAll(EMOJI, ''));
  if (format === 'off') return emoji ? text : tidy(plain(text));
  return wordsOf(format === 'html' ? text : marked.parse(text, { async: false }), plain);
}

function wordsOf(html: string, plain: (piece: string) => string): string {
  const lines: string[] = [];
  let line = '';
  let linkStart = 0;
  let silent = 0;
  const endLine = () => {
    lines.push(line);
    line = '';
    linkStart = 0;
  };
  const handler: Partial<Handler> = {
    onopentag(name, { alt }) {
      if (BLOCKS.has(name)) endLine();
      if (SILENT.has(name)) silent += 1;
      if (silent > 0) return;
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
      if (SENTENCES.has(name) && /[\p{L}\p{N},] *$/u.test(line)) line = line.replace(/[, ]*$/, '.');
      if (BLOCKS.has(name)) endLine();
    },
  };
  // As in XHTML.
  new Parser(handler, { recognizeSelfClosing: true }).end(html);
  return tidy([...lines, line].join('\n'));
}

const hostOf = (text: string): string =>
  /^https?:\/\/\S+$/.test(text) && URL.canParse(text) ? new URL(text).host : text;

const tidy = (text: string): string =>
  text
    .split('\n')
    .map((line) => line.replaceAll(/\s+/g, ' ').trim())
    .filter(Boolean)
    .join('\n');
