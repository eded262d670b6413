import { sql } from 'kysely';
import type { Database } from '../db/database.ts';
import { captureHold, voidHold } from '../ledger/hold.ts';
import type { SpokenBy } from '../ledger/paid-for.ts';
import type { AudioType } from '../speech/provider.ts';
import type { Claim } from './claim-job.ts';
import { enqueue } from './enqueue.ts';

/** What of a job its owner may write about. */
type Owned = Pick<Claim, 'jobId' | 'holdId' | 'fence'>;

/*
 * Each of these is one transaction, tells whether the owner has ended the job so, and may be repeated after a lost
 * answer. False: the fence is another by now, and nothing was written.
 */

/** Completes the job and captures its hold. The text is erased (R18). */
export async function completeJob(
  db: Database,
  job: Owned,
  result: { readonly mimeType: AudioType; readonly sizeBytes: number; readonly upstream?: SpokenBy | undefined },
  retentionSeconds: number,
): Promise<boolean> {
  return end(db, job, 'completed', async (trx) => {
    await trx
      .updateTable('job')
      .set({ ...ended('completed', retentionSeconds), mime_type: result.mimeType, size_bytes: result.sizeBytes })
      .where('id', '=', job.jobId)
      .execute();
    if (!(await captureHold(trx, { ...hold(job), upstream: result.upstream })))
      throw new Error('the hold of a live job had ended');
  });
}

/** Fails the job and voids its hold. The text is erased (R18). */
export async function failJob(
  db: Database,
  job: Owned,
  error: { readonly code: string; readonly message: string },
  retentionSeconds: number,
): Promise<boolean> {
  return end(db, job, 'failed', async (trx) => {
    await trx
      .updateTable('job')
      .set({ ...ended('failed', retentionSeconds), error_code: error.code, error_message: error.message })
      .where('id', '=', job.jobId)
      .execute();
    if ((await voidHold(trx, hold(job))) === undefined) throw new Error('the hold of a live job had ended');
  });
}

/**
 * Queues the job again, to be tried after a delay; the hold stays.
 * @param uncounted the attempt was broken off by us and doesn't count
 */
export async function requeueJob(
  db: Database,
  job: Owned,
  { delayMs, uncounted }: { readonly delayMs: number; readonly uncounted?: boolean },
): Promise<boolean> {
  return end(db, job, 'queued', async (trx) => {
    await trx
      .updateTable('job')
      .set({
        state: 'queued',
        worker_id: null,
        run_at: sql<Date>`now() + make_interval(secs => ${delayMs / 1000}::double precision)`,
        attempts: sql<number>`attempts - ${uncounted ? 1 : 0}::integer`,
        updated_at: sql<Date>`now()`,
      })
      .where('id', '=', job.jobId)
      .execute();
    await enqueue(trx, job.jobId);
  });
}

async function end(
  db: Database,
  { jobId, fence }: Owned,
  as: string,
  write: (trx: Database) => Promise<void>,
): Promise<boolean> {
  return db.transaction().execute(async (trx) => {
    const row = await trx
      .selectFrom('job')
      .select('state')
      .where('id', '=', jobId)
      .where('fence', '=', fence)
      .forUpdate()
      .executeTakeFirst();
    if (row?.state !== 'processing') return row?.state === as;
    await write(trx);
    return true;
  });
}

const hold = ({ holdId, fence }: Owned) => ({ id: holdId, fence });

/** What was stored for a failed job by an earlier attempt is deleted when that of a completed one would be. */
const ended = (state: 'completed' | 'failed', retentionSeconds: number) => ({
  state,
  text: null,
  worker_id: null,
  completed_at: sql<Date>`now()`,
  updated_at: sql<Date>`now()`,
  audio_expires_at: sql<Date | null>`case when store_audio then
    now() + make_interval(secs => ${retentionSeconds}::double precision) end`,
});
