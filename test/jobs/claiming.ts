import assert from 'node:assert/strict';
import { sql } from 'kysely';
import type { Test } from 'tap';
import { type Claim, claimJob } from '../../src/jobs/claim-job.ts';
import { type Gateway, startGateway } from '../support/gateway.ts';
import { testUpstream } from '../support/stub-upstream.ts';

export const PRICE = 198n;
export const FUNDS = 5_000_000n;
export const RESULT = { mimeType: 'audio/mpeg', sizeBytes: 1 } as const;
export const RETENTION = 3600;

/** Replicas on one database; none runs jobs before it is told to. */
export async function start(t: Test, replicas = 1, env: Record<string, string> = {}) {
  const upstream = await testUpstream(t);
  const first = await startGateway(t, { SPEECH_BASE_URL: upstream.url, ...env });
  const gateways = [first];
  for (let index = 1; index < replicas; index++) {
    const { databaseUrl } = first;
    const shared = { SPEECH_BASE_URL: upstream.url, AUDIO_STORE: first.config.jobs.audioStore, ...env };
    gateways.push(await startGateway(t, shared, { databaseUrl }));
  }
  return { upstream, gateway: first, gateways, account: await first.fund(500) };
}

export const row = (gateway: Gateway, id: string) =>
  gateway.db.selectFrom('job').selectAll().where('id', '=', id).executeTakeFirstOrThrow();

/** A job that somebody has claimed. */
export async function claimed(gateway: Gateway, jobId: string): Promise<Claim> {
  const claim = await claimJob(gateway.db, jobId);
  assert.ok(claim);
  return claim;
}

/** As if the worker that claimed the job had died: its lease has ended. */
export const endLease = (gateway: Gateway, jobId: string) =>
  sql`update job set lease_until = now() - interval '1 second' where id = ${jobId} and state = 'processing'`.execute(
    gateway.db,
  );
