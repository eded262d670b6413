import { Console } from 'node:console';
import type { Readable, Writable } from 'node:stream';
import { printable, printableJson, tableLine } from '../../lib/printable.ts';
import { serviceWords } from '../../lib/service-words.ts';
import { EXIT, type ExitCode, type Failure } from './failure.ts';

/** What a command uses of the process that it runs in. */
export interface CommandProcess {
  readonly env: NodeJS.ProcessEnv;
  readonly stdin: Readable;
  readonly stdout: OutputStream;
  readonly stderr: OutputStream;
  once(signal: 'SIGINT' | 'SIGTERM', listener: () => void): unknown;
}

export type OutputStream = Writable & { readonly isTTY?: boolean };

type OutputProcess = Pick<CommandProcess, 'env' | 'stdout' | 'stderr'>;

const PROGRESS_AFTER_MS = 1_000;
const CLEAR_LINE = '\r\u001b[K';

export class Output {
  readonly isJson: boolean;
  exitCode: ExitCode = EXIT.done;
  readonly #console: Console;
  readonly #host: OutputProcess;

  constructor(isJson: boolean, host: OutputProcess) {
    this.isJson = isJson;
    this.#host = host;
    this.#console = new Console(host.stdout, host.stderr);
  }

  done(document: object, lines: readonly string[]): void {
    if (this.isJson) this.#console.log(printableJson(document));
    // One write, so that a reader of the first line gets the others too.
    else if (lines.length > 0) this.#console.log(lines.map(printable).join('\n'));
  }

  print(text: string): void {
    this.#console.log(text);
  }

  note(line: string): void {
    if (!this.isJson) this.#console.error(printable(line));
  }

  /** Prints what the user must do now, also with `--json`. */
  prompt(line: string): void {
    this.#console.error(printable(line));
  }

  failed({ message, ...failure }: Failure): void {
    this.#console.error(this.isJson ? printableJson({ error: { ...failure, message } }) : printable(message));
    this.exitCode = failure.exit;
  }

  /** Prints progress to standard error if the work takes more than a second; not with `--json`. */
  async withProgress<T>(description: string, work: Promise<T>): Promise<T> {
    if (this.isJson) return work;
    const { stderr, env } = this.#host;
    const begunAt = performance.now();
    const seconds = () => Math.round((performance.now() - begunAt) / 1000);
    const isTerminal = stderr.isTTY && env.TERM !== 'dumb';
    const write = (text: string) => void stderr.write(text);
    let counting: NodeJS.Timeout | undefined;
    const first = setTimeout(() => {
      if (!isTerminal) return write(`${description} …\n`);
      const show = () => write(`${CLEAR_LINE}${description} … ${seconds()} s`);
      counting = setInterval(show, PROGRESS_AFTER_MS);
      show();
    }, PROGRESS_AFTER_MS);
    try {
      return await work;
    } finally {
      clearTimeout(first);
      clearInterval(counting);
      if (counting) write(CLEAR_LINE);
    }
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
