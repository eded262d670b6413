import type { Belonging } from '../ledger/belonging.ts';
import { pruneNonces } from '../ledger/wallets.ts';
import { TOP_UP_WINDOW_SECONDS } from '../operations/top-up-operations.ts';
import type { SharedParts } from './feature.ts';

/**
 * Forgets spent nonces (R34) and rate windows, every interval in every process, until the returned function is called:
 * what a request makes is many small rows, which several processes may delete at once. What is kept for weeks is deleted
 * by a reconciler (reconcile/old-rows.ts). Asks the database also whose money it holds, until it has told.
 */
export function startPruning({ config, db, limits, work, log }: SharedParts, belonging: Belonging): () => void {
  const longestWindowSeconds = Math.max(config.rateLimit.windowSeconds, TOP_UP_WINDOW_SECONDS);
  const stopping = new AbortController();
  const tasks = [
    inTurns('rate windows', () => limits.prune(longestWindowSeconds)),
    inTurns('spent nonces', () => pruneNonces(db)),
  ];
  const timer = setInterval(() => {
    for (const task of tasks) work.add(task());
    // Until the database was there for the first time; whoever needs it meanwhile tells that it is not.
    work.add(belonging.check()).catch(() => {});
  }, config.reconcileIntervalMs).unref();
  return () => {
    clearInterval(timer);
    stopping.abort();
  };

  /** Prunes, batch after batch, until nothing is left; a turn that still runs is not begun again. */
  function inTurns(what: string, prune: () => Promise<number>): () => Promise<void> {
    let isRunning = false;
    return async () => {
      if (isRunning) return;
      isRunning = true;
      try {
        while (!stopping.signal.aborted && (await prune()) > 0);
      } catch (err) {
        log.warn({ err }, `${what} could not be pruned`);
      } finally {
        isRunning = false;
      }
    };
  }
}
