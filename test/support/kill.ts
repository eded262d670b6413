import assert from 'node:assert/strict';
import { sql } from 'kysely';
import type { Test } from 'tap';
import type { Database } from '../../src/db/database.ts';
import { type Child, startChild } from './child.ts';
import type { Gateway } from './gateway.ts';
import { type GatewayProcess, startGatewayProcess } from './gateway-process.ts';
import type { Kill } from './kills.ts';
import { testRunner } from './reconcile.ts';
import { until } from './until.ts';

/** What PostgreSQL knows a victim's connections as. */
const APPLICATION_NAME = 'victim';

/** A gateway that ends as by `kill -9` when it comes to this point (src/lib/test-point.ts). */
export const startVictim = (
  t: Test,
  point: Kill,
  env: Record<string, string>,
  args: string[] = [],
): Promise<GatewayProcess> => startGatewayProcess(t, withKillAt(point, env), args);

interface Program {
  readonly program: string;
  readonly env: Record<string, string>;
  readonly args?: string[];
}

/** Likewise, another program of the project. */
export const startVictimProgram = (t: Test, point: Kill, { program, env, args = [] }: Program): Child =>
  startChild(t, program, withKillAt(point, env), args);

/** Runs a program of the project that is to end as by `kill -9` when it comes to this point. */
export const killCommand = (t: Test, point: Kill, program: Program): Promise<void> =>
  killed(startVictimProgram(t, point, program));

/** Runs one reconciler, which is to end as by `kill -9` when it comes to this point. */
export const killReconciler = (t: Test, point: Kill, name: string, env: Record<string, string>): Promise<void> =>
  killCommand(t, point, { program: 'test/support/reconciler-process.ts', env, args: [name] });

/** Waits until a victim has died at its point. */
export async function killed(child: Child): Promise<void> {
  await child.ended();
  assert.equal(child.process.signalCode, 'SIGKILL', child.output());
}

function withKillAt(point: Kill, env: Record<string, string>): Record<string, string> {
  const url = new URL(env.DATABASE_URL as string);
  url.searchParams.set('application_name', APPLICATION_NAME);
  return { ...env, DATABASE_URL: url.href, NODE_ENV: 'test', SPEECHGATE_TEST_KILL_AT: point };
}

/** Waits for the statements that the victim sent before it died: PostgreSQL carries them out all the same. */
const untilDisconnected = (db: Database) =>
  until(async () => {
    const { rows } = await sql`select from pg_stat_activity
      where datname = current_database() and application_name = ${APPLICATION_NAME}`.execute(db);
    return rows.length === 0;
  });

/** As if the victim had died some time ago: its leases are over. */
export async function letLeasesEnd(db: Database): Promise<void> {
  await untilDisconnected(db);
  await sql`update transfer set lease_until = now() - interval '1 second' where state = 'pending'
            and lease_until is not null`.execute(db);
  await sql`update x402_payment set lease_until = now() - interval '1 second' where lease_until is not null`.execute(
    db,
  );
  await sql`update job set lease_until = now() - interval '1 second' where lease_until is not null`.execute(db);
  // Its queue may have locked an entry that it had not begun.
  await sql`update graphile_worker._private_jobs set locked_at = now() - interval '1 minute'
            where locked_at is not null`.execute(db);
  await sql`update job set run_at = run_at - interval '1 minute' where state = 'queued'`.execute(db);
  await sql`update reconciler set lease_until = now() - interval '1 second', started_at = now() - interval '1 hour'
            where lease_until is not null`.execute(db);
}

/** What another process's reconcilers make of a victim whose leases have ended: no hold of it is left. */
export async function sweepVictim(gateway: Gateway): Promise<void> {
  const { db } = gateway;
  await letLeasesEnd(db);
  const runner = testRunner(gateway, { names: ['expired_holds'] });
  for (const { outcome, error } of await runner.turn()) assert.equal(outcome, 'done', String(error));
  assert.deepEqual(await db.selectFrom('transfer').select('id').where('state', '=', 'pending').execute(), []);
}
