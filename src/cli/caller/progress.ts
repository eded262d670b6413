const AFTER_MS = 1_000;
const CLEAR_LINE = '\r\u001b[K';

/**
 * Waits for the work. When that takes more than a second, standard error tells for what: on a terminal in one line that
 * counts the seconds and goes away at the end, elsewhere in a plain line, and with `--json` nothing tells it.
 */
export async function withProgress<T>(what: string, isJson: boolean, work: Promise<T>): Promise<T> {
  if (isJson) return work;
  const begunAt = performance.now();
  const seconds = () => Math.round((performance.now() - begunAt) / 1000);
  const isTerminal = process.stderr.isTTY && process.env.TERM !== 'dumb';
  const write = (text: string) => void process.stderr.write(text);
  let counting: NodeJS.Timeout | undefined;
  const first = setTimeout(() => {
    if (!isTerminal) return write(`${what} …\n`);
    const show = () => write(`${CLEAR_LINE}${what} … ${seconds()} s`);
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
