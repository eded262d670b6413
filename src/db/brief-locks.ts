import { setTimeout as sleep } from 'node:timers/promises';
import { type Kysely, sql } from 'kysely';

/**
 * How long a statement that changes the schema waits for its locks. Every request that comes meanwhile waits behind it.
 * Below PostgreSQL's `deadlock_timeout` of a second, so that who gives way is never a request.
 */
export const LOCK_TIMEOUT_MS = 300;
/** So that what has waited behind it is served before the next attempt. */
const PAUSE_MS = 700;
/** How long it is tried. */
const PATIENCE_MS = 600_000;
/** lock_not_available, deadlock_detected. */
const IN_THE_WAY = ['55P03', '40P01'];

/** Has the transaction's statements give up soon where others hold the locks that they need. */
export async function lockBriefly<T>(transaction: Kysely<T>): Promise<void> {
  await sql`set local lock_timeout = ${sql.lit(LOCK_TIMEOUT_MS)}`.execute(transaction);
}

/** Tries a transaction that locks briefly until nobody is in its way, for ten minutes at most. */
export async function untilUnlocked<T>(transaction: () => Promise<T>): Promise<T> {
  for (const giveUpAt = performance.now() + PATIENCE_MS; ; await sleep(PAUSE_MS)) {
    try {
      return await transaction();
    } catch (error) {
      if (!IN_THE_WAY.includes(String((error as { code?: unknown }).code)) || performance.now() > giveUpAt) throw error;
    }
  }
}
