import { sql } from 'kysely';
import type { Test } from 'tap';
import { type Gateway, startGateway } from '../support/gateway.ts';
import { startStubUpstream } from '../support/stub-upstream.ts';

export const PRICE = 198n;
export const FUNDS = 5_000_000n;

export async function start(t: Test, env: Record<string, string> = {}, options: { worker?: boolean } = {}) {
  const upstream = await startStubUpstream();
  t.teardown(() => upstream.close());
  const gateway = await startGateway(t, { SPEECH_BASE_URL: upstream.url, ...env }, { worker: true, ...options });
  return { upstream, gateway, account: await gateway.fund(500) };
}

export const row = (gateway: Gateway, id: string) =>
  gateway.db.selectFrom('job').selectAll().where('id', '=', id).executeTakeFirstOrThrow();

export async function holdOf(gateway: Gateway, jobId: string) {
  const { hold_id } = await row(gateway, jobId);
  return gateway.db.selectFrom('transfer').selectAll().where('id', '=', hold_id).executeTakeFirstOrThrow();
}

/** As if the job had been waiting: its next attempt is due now. */
export async function hurry(gateway: Gateway, jobId: string, attempts?: number) {
  await gateway.db
    .updateTable('job')
    .set({ run_at: sql<Date>`now()`, ...(attempts !== undefined && { attempts }) })
    .where('id', '=', jobId)
    .execute();
  await sql`select graphile_worker.add_job('speak', json_build_object('jobId', ${jobId}::text), job_key => ${jobId}::text)`.execute(
    gateway.db,
  );
}

export async function untilRunAtIsAhead(gateway: Gateway, jobId: string) {
  for (;;) {
    const found = await gateway.db
      .selectFrom('job')
      .selectAll()
      .where('id', '=', jobId)
      .where('run_at', '>', sql<Date>`now()`)
      .executeTakeFirst();
    if (found) return found;
  }
}
