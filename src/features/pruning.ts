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
  const timer = setInterval(() => {
    work.add(limits.prune(longestWindowSeconds)).catch((err) => log.warn({ err }, 'rate windows could not be pruned'));
    work.add(pruneNonces(db)).catch((err) => log.warn({ err }, 'spent nonces could not be pruned'));
    // Until the database was there for the first time; whoever needs it meanwhile tells that it is not.
    work.add(belonging.check()).catch(() => {});
  }, config.reconcileIntervalMs).unref();
  return () => clearInterval(timer);
}
