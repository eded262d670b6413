import { setTimeout as sleep } from 'node:timers/promises';

/** Waits up to a limit for work that may fail or hang, for example while the database is down. */
export async function within(milliseconds: number, work: Promise<unknown>): Promise<void> {
  const enough = new AbortController();
  const timeout = sleep(milliseconds, undefined, { signal: enough.signal });
  await Promise.race([work, timeout]).catch(() => {});
  enough.abort();
  await timeout.catch(() => {});
}
