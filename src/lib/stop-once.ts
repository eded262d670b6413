import { closeSync } from 'node:fs';
import { isatty } from 'node:tty';
import closeWithGrace from 'close-with-grace';
import type { Logger } from 'pino';

/** A terminal, npm and `timeout` may each send the same stop again. close-with-grace would exit at the second signal. */
const SIGNALS = ['SIGTERM', 'SIGINT', 'SIGHUP', 'SIGQUIT'] as const;

/**
 * Closes once at a signal or an unexpected error, and exits. Later signals change nothing.
 * @param onHangUp called at SIGHUP by a process without a terminal; at the end of its terminal, a process stops
 * @returns stops as a signal does
 */
export function stopOnce(
  options: { readonly timeoutMs: number; readonly logger: Logger | Console | false; readonly onHangUp?: () => void },
  close: (error: Error | undefined) => Promise<void>,
): () => void {
  const { timeoutMs, logger, onHangUp } = options;
  let isStopping = false;
  const grace = closeWithGrace({ delay: timeoutMs, logger, skip: [...SIGNALS] }, async ({ err }) => {
    isStopping = true;
    await close(err);
  });
  const stop = () => {
    if (!isStopping) grace.close();
  };
  const terminals = [0, 1, 2].filter((fd) => isatty(fd));
  for (const signal of SIGNALS) {
    process.on(signal, onHangUp && signal === 'SIGHUP' && terminals.length === 0 ? onHangUp : stop);
  }
  process.once('exit', () => {
    // Node.js restores the settings of its terminal last. If the terminal was closed, that fails and may never end.
    for (const fd of terminals) if (!isatty(fd)) closeSync(fd);
  });
  return stop;
}
