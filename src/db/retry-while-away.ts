import { setTimeout as sleep } from 'node:timers/promises';
import { isUnavailable } from './database-errors.ts';

const RETRY_EVERY_MS = 250;

/** Repeats a statement that is safe to repeat while the database is away, for at most so long. */
export async function retryWhileAway<T>(patienceMs: number, statement: () => Promise<T>): Promise<T> {
  for (const giveUpAt = performance.now() + patienceMs; ; await sleep(RETRY_EVERY_MS)) {
    try {
      return await statement();
    } catch (error) {
      if (!isUnavailable(error) || performance.now() >= giveUpAt) throw error;
    }
  }
}
