import { setTimeout as sleep } from 'node:timers/promises';
import type { Database } from './database.ts';
import { faultOf, isRefused } from './database-errors.ts';
import { pendingMigrations } from './migrate.ts';

export type Readiness =
  | { readonly outcome: 'ready' }
  | { readonly outcome: 'unmigrated'; readonly pending: readonly string[] }
  /** Refused by its settings, such as a wrong password, or unavailable for now. */
  | { readonly outcome: 'refused' | 'unavailable'; readonly cause: string };

/** Whether the service can use the database now. Never throws. */
export async function readReadiness(db: Database, timeoutMs: number): Promise<Readiness> {
  const enough = new AbortController();
  const late = async (): Promise<Readiness> => {
    await sleep(timeoutMs, undefined, { signal: enough.signal });
    return { outcome: 'unavailable', cause: `no answer within ${timeoutMs / 1000} s` };
  };
  try {
    return await Promise.race([ask(db), late()]);
  } finally {
    enough.abort();
  }
}

async function ask(db: Database): Promise<Readiness> {
  try {
    const pending = await pendingMigrations(db);
    return pending.length === 0 ? { outcome: 'ready' } : { outcome: 'unmigrated', pending };
  } catch (error) {
    const cause = error instanceof Error ? faultOf(error) : undefined;
    return { outcome: isRefused(error) ? 'refused' : 'unavailable', cause: cause ?? 'an unknown error' };
  }
}
