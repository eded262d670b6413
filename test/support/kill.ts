import assert from 'node:assert/strict';
import { setTimeout as sleep } from 'node:timers/promises';
import { sql } from 'kysely';
import type { Test } from 'tap';
import type { Database } from '../../src/db/database.ts';
import { startChild } from './child.ts';
import type { Gateway } from './gateway.ts';
import { type GatewayProcess, startGatewayProcess } from './gateway-process.ts';
import type { Kill } from './kills.ts';
import { testRunner } from './reconcile.ts';
import { until } from './until.ts';

/** Settings of short leases: a second for the synthesis, and 30 that a lease outlasts it. */
export const SHORT_LEASES = { SPEECH_TIMEOUT_MS: '1000', RECONCILE_INTERVAL_MS: '1000' };

const LEASE_AND_TWO_INTERVALS_MS = 31_000 + 2 * 1000;
const RESERVE_MS = 30_000;
const POLL_MS = 200;
/** What PostgreSQL knows a victim's connections as. */
const VICTIM = 'victim';

/** A gateway that ends as by `kill -9` when it comes to this point (src/lib/test-point.ts). */
export const startVictim = (t: Test, point: Kill, env: Record<string, string>): Promise<GatewayProcess> =>
  startGatewayProcess(t, mortal(point, env));

/** Runs a program of the project that is to end as by `kill -9` when it comes to this point. */
export async function killCommand(
  t: Test,
  point: Kill,
  { program, env, args = [] }: { program: string; env: Record<string, string>; args?: string[] },
): Promise<void> {
  const child = startChild(t, program, mortal(point, env), args);
  await child.ended();
  assert.equal(child.process.signalCode, 'SIGKILL', child.output());
}

function mortal(point: Kill, env: Record<string, string>): Record<string, string> {
  const url = new URL(env.DATABASE_URL as string);
  url.searchParams.set('application_name', VICTIM);
  return { ...env, DATABASE_URL: url.href, NODE_ENV: 'test', SPEECHGATE_TEST_KILL_AT: point };
}

/** Waits for the statements that the victim sent before it died: PostgreSQL carries them out all the same. */
const untilUnheard = (db: Database) =>
  until(async () => {
    const { rows } = await sql`select from pg_stat_activity
      where datname = current_database() and application_name = ${VICTIM}`.execute(db);
    return rows.length === 0;
  });

/** As if the victim had died an hour ago: its leases are over, and nobody has heard of it since. */
export async function letLeasesEnd(db: Database): Promise<void> {
  await untilUnheard(db);
  await sql`update transfer set lease_until = now() - interval '1 second' where state = 'pending'
            and lease_until is not null`.execute(db);
  await sql`update gateway_process set heartbeat_at = now() - interval '1 hour',
            suspected_at = now() - interval '1 hour'`.execute(db);
  await sql`update x402_payment set lease_until = now() - interval '1 second' where lease_until is not null`.execute(
    db,
  );
  await sql`update worker set heartbeat_at = now() - interval '1 hour'`.execute(db);
  await sql`update reconciler set lease_until = now() - interval '1 second', started_at = now() - interval '1 hour'
            where lease_until is not null`.execute(db);
}

/** What another process's reconcilers make of a victim whose leases have ended: no hold of it is left, nor itself. */
export async function sweepVictim(gateway: Gateway): Promise<void> {
  const { db } = gateway;
  await letLeasesEnd(db);
  const runner = testRunner(gateway, { names: ['expired_holds', 'undelivered'] });
  // The process is forgotten in the turn after that in which its holds were ended.
  for (let turns = 0; turns < 2; turns++) {
    for (const { outcome, error } of await runner.turn()) assert.equal(outcome, 'done', String(error));
  }
  assert.deepEqual(await db.selectFrom('transfer').select('id').where('state', '=', 'pending').execute(), []);
  assert.deepEqual(await db.selectFrom('gateway_process').select('id').execute(), []);
}

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
