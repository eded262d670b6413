import type { FileBudget } from './file-budget.ts';

const EVERY_MS = 60_000;

/** Settles what nobody else will, now and once a minute, until it is stopped. It keeps no process alive. */
export function watchLost(
  budget: Pick<FileBudget, 'concludeLost'>,
  client: Parameters<FileBudget['concludeLost']>[0],
): () => void {
  // What can't be told now is told the next time.
  const conclude = () => void budget.concludeLost(client).catch(() => {});
  conclude();
  const timer = setInterval(conclude, EVERY_MS).unref();
  return () => clearInterval(timer);
}
