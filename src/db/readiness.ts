import { within } from '../lib/within.ts';
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
  let found: Readiness = { outcome: 'unavailable', cause: `no answer within ${timeoutMs / 1000} s` };
  await within(
    timeoutMs,
    ask(db).then((answer) => {
      found = answer;
    }),
  );
  return found;
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
