import { within } from '../lib/within.ts';

/** How soon a renewal that failed is tried again. */
const RETRY_MS = 1_000;

export interface Lease {
  /** When it was asked for, by this process's monotonic clock: earlier than it began by the database's. */
  readonly askedAt: number;
  readonly durationMs: number;
  /** Prolongs it to its full duration from now. False when it belongs to somebody else, or to nobody any more. */
  renew(): Promise<boolean>;
}

/**
 * Keeps a lease from passing until the returned function is called:
 *
 *     first third   nothing is done: most work has ended by then
 *     second third  renewed; when that fails, tried again
 *     last third    lost, since the database was away: what is under way must end, and has this long to do so
 *
 * `lost` is called at most once. The process's own view is the stricter one: its thirds begin before the database's.
 */
export function keepLease({ askedAt, durationMs, renew }: Lease, lost: () => void): () => void {
  const third = durationMs / 3;
  let renewedAt = askedAt;
  let hasEnded = false;
  let timer = renewIn(third - (performance.now() - askedAt));

  function renewIn(ms: number): NodeJS.Timeout {
    return setTimeout(attempt, Math.max(0, ms));
  }

  async function attempt(): Promise<void> {
    const startedAt = performance.now();
    const lostAt = renewedAt + 2 * third;
    let isKept: boolean | undefined;
    await within(
      lostAt - startedAt,
      renew().then((result) => {
        isKept = result;
      }),
    );
    if (hasEnded) return;
    if (isKept) renewedAt = startedAt;
    if (isKept === false || performance.now() >= renewedAt + 2 * third) {
      hasEnded = true;
      lost();
    } else {
      timer = renewIn(isKept ? third : Math.min(RETRY_MS, lostAt - performance.now()));
    }
  }

  return () => {
    hasEnded = true;
    clearTimeout(timer);
  };
}
