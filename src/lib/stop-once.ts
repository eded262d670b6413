import { closeSync } from 'node:fs';
import { isatty } from 'node:tty';
import closeWithGrace from 'close-with-grace';
import type { Logger } from 'pino';

/** A terminal, npm and `timeout` may each send the same stop again. close-with-grace would exit at the second signal. */
const SIGNALS = ['SIGTERM', 'SIGINT', 'SIGHUP', 'SIGQUIT'] as const;

/**
 * Closes once at a signal or an unexpected error, and exits. Later signals change nothing.
 * @returns stops as a signal does
 */
export function stopOnce(
  { timeoutMs, logger }: { readonly timeoutMs: number; readonly logger: Logger | Console | false },
  close: (error: Error | undefined) => Promise<void>,
): () => void {
  let isStopping = false;
  const grace = closeWithGrace({ delay: timeoutMs, logger, skip: [...SIGNALS] }, async ({ err }) => {
    isStopping = true;
    await close(err);
  });
  const stop = () => {
    if (!isStopping) grace.close();
  };
  for (const signal of SIGNALS) process.on(signal, stop);
  const terminals = [0, 1, 2].filter((fd) => isatty(fd));
  process.once('exit', () => {
    // Node.js restores the settings of its terminal last. If the terminal was closed, that fails and may never end.
    for (const fd of terminals) if (!isatty(fd)) closeSync(fd);
  });
  return stop;
}
