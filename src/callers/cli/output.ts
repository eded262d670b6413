import { printable, printableJson, tableLine } from '../../lib/printable.ts';
import { serviceWords } from '../../lib/service-words.ts';
import type { Failure } from './failure.ts';

export class Output {
  readonly isJson: boolean;

  constructor(isJson: boolean) {
    this.isJson = isJson;
  }

  done(document: object, lines: readonly string[]): void {
    if (this.isJson) console.log(printableJson(document));
    // One write, so that a reader of the first line gets the others too.
    else if (lines.length > 0) console.log(lines.map(printable).join('\n'));
  }

  note(line: string): void {
    if (!this.isJson) console.error(printable(line));
  }

  failed({ message, ...failure }: Failure): void {
    console.error(this.isJson ? printableJson({ error: { ...failure, message } }) : printable(message));
  }
}

const AFTER_MS = 1_000;
const CLEAR_LINE = '\r\u001b[K';

/** Prints progress to standard error if the work takes more than a second; not with `--json`. */
export async function withProgress<T>(description: string, isJson: boolean, work: Promise<T>): Promise<T> {
  if (isJson) return work;
  const begunAt = performance.now();
  const seconds = () => Math.round((performance.now() - begunAt) / 1000);
  const isTerminal = process.stderr.isTTY && process.env.TERM !== 'dumb';
  const write = (text: string) => void process.stderr.write(text);
  let counting: NodeJS.Timeout | undefined;
  const first = setTimeout(() => {
    if (!isTerminal) return write(`${description} …\n`);
    const show = () => write(`${CLEAR_LINE}${description} … ${seconds()} s`);
    counting = setInterval(show, AFTER_MS);
    show();
  }, AFTER_MS);
  try {
    return await work;
  } finally {
    clearTimeout(first);
    clearInterval(counting);
    if (counting) write(CLEAR_LINE);
  }
}

const MAX_ROWS = 100;

export const ALL_OPTION = { all: { type: 'boolean', default: false } } as const;
export const ALL_USAGE = `
  --all            lists all of them; default: the first ${MAX_ROWS} (--json lists all)`;

export function rowsOf<Item>(
  items: readonly Item[],
  { all }: { readonly all: boolean },
  cellsOf: (item: Item) => readonly string[],
  head: readonly string[] = [],
): readonly string[] {
  const displayed = all ? items : items.slice(0, MAX_ROWS);
  const rows = displayed.map((item) => cellsOf(item).map(serviceWords));
  const table = head.length > 0 ? [head, ...rows] : rows;
  const [first = []] = table;
  const widths = first
    .slice(0, -1)
    .map((_, column) => table.reduce((widest, row) => Math.max(widest, row[column]?.length ?? 0), 0));
  const more = items.length - displayed.length;
  return [...table.map((row) => tableLine(widths, row)), ...(more > 0 ? [`${more} more; --all lists them.`] : [])];
}
