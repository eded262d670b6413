import { setTimeout as sleep } from 'node:timers/promises';
import type { Kysely } from 'kysely';
import { localSetting } from './expressions.ts';

/** How long a schema change waits for locks. Below `deadlock_timeout`, so that no request is aborted for it. */
export const LOCK_TIMEOUT_MS = 300;
const PAUSE_MS = 700;
const TIMEOUT_MS = 600_000;
const IN_THE_WAY = ['55P03', '40P01'];

export async function lockBriefly<T>(transaction: Kysely<T>): Promise<void> {
  await transaction.selectNoFrom(localSetting('lock_timeout', String(LOCK_TIMEOUT_MS)).as('timeout')).execute();
}

export async function lockByNumber<T>(transaction: Kysely<T>, number: number): Promise<void> {
  await transaction.selectNoFrom(({ fn, val }) => fn('pg_advisory_xact_lock', [val(number)]).as('lock')).execute();
}

/** Retries a transaction for at most ten minutes until it gets its locks. */
export async function untilUnlocked<T>(transaction: () => Promise<T>): Promise<T> {
  for (const giveUpAt = performance.now() + TIMEOUT_MS; ; await sleep(PAUSE_MS)) {
    try {
      return await transaction();
    } catch (error) {
      if (!IN_THE_WAY.includes(String((error as { code?: unknown }).code)) || performance.now() > giveUpAt) throw error;
    }
  }
}
