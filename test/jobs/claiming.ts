import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { sql } from 'kysely';
import type { Test } from 'tap';
import { type Claim, claimJob } from '../../src/jobs/claim-job.ts';
import { beat } from '../../src/jobs/heartbeat.ts';
import { type Gateway, startGateway } from '../support/gateway.ts';
import { startStubUpstream } from '../support/stub-upstream.ts';

export const PRICE = 198n;
export const FUNDS = 5_000_000n;
export const RESULT = { mimeType: 'audio/mpeg', sizeBytes: 1 } as const;
export const RETENTION = 3600;

/** Replicas on one database; none runs jobs before it is told to. */
export async function start(t: Test, replicas = 1, env: Record<string, string> = {}) {
  const upstream = await startStubUpstream();
  t.teardown(() => upstream.close());
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

/** A worker that claimed the job and was not heard of for these seconds. */
export async function claimedByWorker(gateway: Gateway, jobId: string, silentSeconds: number): Promise<Claim> {
  const worker = randomUUID();
  await beat(gateway.db, worker, `pool-${worker}`);
  const claim = await claimJob(gateway.db, jobId, worker);
  await sql`update worker set heartbeat_at = now() - make_interval(secs => ${silentSeconds}) where id = ${worker}`.execute(
    gateway.db,
  );
  assert.ok(claim);
  return claim;
}
