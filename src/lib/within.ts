import { setTimeout as sleep } from 'node:timers/promises';

/** Waits, that long at most, for work that may fail or hang, as it does while the database is away. */
export async function within(milliseconds: number, work: Promise<unknown>): Promise<void> {
  const enough = new AbortController();
  const timeout = sleep(milliseconds, undefined, { signal: enough.signal });
  await Promise.race([work, timeout]).catch(() => {});
  enough.abort();
  await timeout.catch(() => {});
}
