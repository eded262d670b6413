import type { TestContext } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Database } from '../../src/db/database.ts';
import { type GatewayProcess, startGatewayProcess } from './gateway-process.ts';

/** Settings of short leases: a second for the synthesis, and 30 that a lease outlasts it. */
export const SHORT_LEASES = { SPEECH_TIMEOUT_MS: '1000', RECONCILE_INTERVAL_MS: '1000' };

const LEASE_AND_TWO_INTERVALS_MS = 31_000 + 2 * 1000;
const POLL_MS = 200;

/** A gateway that ends as by `kill -9` when it comes to this point (src/test-point.ts). */
export const startVictim = (t: TestContext, point: string, env: Record<string, string>): Promise<GatewayProcess> =>
  startGatewayProcess(t, { ...env, NODE_ENV: 'test', SPEECHGATE_TEST_KILL_AT: point });

/** Waits until no hold is pending, at most for a lease and two turns of the reconcilers, all of SHORT_LEASES. */
export async function untilHoldsEnd(db: Database): Promise<void> {
  const pending = () => db.selectFrom('transfer').select('id').where('state', '=', 'pending').execute();
  const giveUpAt = performance.now() + LEASE_AND_TWO_INTERVALS_MS;
  while ((await pending()).length > 0 && performance.now() < giveUpAt) await sleep(POLL_MS);
}
