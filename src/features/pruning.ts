import { TOP_UP_WINDOW_SECONDS } from '../http/routes/top-up-operations.ts';
import type { DatabaseIdentity } from '../ledger/database-identity.ts';
import { pruneNonces } from '../ledger/wallet-holds.ts';
import type { SharedParts } from './feature.ts';

/** Prunes spent nonces (R34) and rate windows at intervals. Returns a stop function. */
export function startPruning(
  { config, db, limits, work, log }: SharedParts,
  databaseIdentity: DatabaseIdentity,
): () => void {
  const longestWindowSeconds = Math.max(config.rateLimit.windowSeconds, TOP_UP_WINDOW_SECONDS);
  const stopping = new AbortController();
  const tasks = [
    inTurns('entries of rate limits', () => limits.prune(longestWindowSeconds)),
    inTurns('nonces of prepaid requests', () => pruneNonces(db)),
  ];
  const timer = setInterval(() => {
    for (const task of tasks) work.add(task());
    // Repeats until the database was reachable once. Requests that need it report the failure.
    work.add(databaseIdentity.check()).catch(() => {});
  }, config.reconcileIntervalMs).unref();
  return () => {
    clearInterval(timer);
    stopping.abort();
  };

  function inTurns(what: string, prune: () => Promise<number>): () => Promise<void> {
    let isRunning = false;
    return async () => {
      if (isRunning) return;
      isRunning = true;
      try {
        while (!stopping.signal.aborted && (await prune()) > 0);
      } catch (err) {
        log.warn({ err }, `failed to delete old ${what}; no request is affected. Fix the cause in err if this repeats`);
      } finally {
        isRunning = false;
      }
    };
  }
}
