import { setTimeout as sleep } from 'node:timers/promises';
import type { Test } from 'tap';
import type { Database } from '../../src/db/database.ts';
import { type GatewayProcess, startGatewayProcess } from './gateway-process.ts';

/** Settings of short leases: a second for the synthesis, and 30 that a lease outlasts it. */
export const SHORT_LEASES = { SPEECH_TIMEOUT_MS: '1000', RECONCILE_INTERVAL_MS: '1000' };

const LEASE_AND_TWO_INTERVALS_MS = 31_000 + 2 * 1000;
const RESERVE_MS = 30_000;
const POLL_MS = 200;

/** A gateway that ends as by `kill -9` when it comes to this point (src/lib/test-point.ts). */
export const startVictim = (t: Test, point: string, env: Record<string, string>): Promise<GatewayProcess> =>
  startGatewayProcess(t, { ...env, NODE_ENV: 'test', SPEECHGATE_TEST_KILL_AT: point });

/**
 * Waits until nothing is left of the process that was registered first, the victim: no hold is pending, and what it did
 * not deliver is given back. At most for a lease and two turns of the reconcilers, all of SHORT_LEASES, or for as long
 * as it takes to be dead, with reserve for a busy machine.
 */
export async function untilVictimIsSwept(db: Database): Promise<void> {
  const victim = await db.selectFrom('gateway_process').select('id').orderBy('id').executeTakeFirstOrThrow();
  const pending = () => db.selectFrom('transfer').select('id').where('state', '=', 'pending').execute();
  const victims = () => db.selectFrom('gateway_process').select('id').where('id', '=', victim.id).execute();
  const giveUpAt = performance.now() + LEASE_AND_TWO_INTERVALS_MS + RESERVE_MS;
  while ((await pending()).length + (await victims()).length > 0 && performance.now() < giveUpAt) await sleep(POLL_MS);
}
