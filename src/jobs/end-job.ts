import type { ExpressionBuilder, UpdateObject } from 'kysely';
import type { DB } from '../../db/tables.ts';
import type { Database } from '../db/database.ts';
import { now, secondsFromNow } from '../db/expressions.ts';
import { captureHold, type UpstreamUsage, voidHold } from '../ledger/hold.ts';
import type { AudioType } from '../speech/provider.ts';
import type { Claim } from './claim-job.ts';
import { enqueue } from './turn.ts';

const HOLD_ENDED =
  'the hold of a running job was captured (charged) or voided (not charged) too early, so the end of the job was not saved and no money moved now. Run speechgate admin audit, and follow AuditBroken in docs/runbook.md';

type Owned = Pick<Claim, 'jobId' | 'holdId' | 'accountId' | 'fence'>;

// Each function below is one transaction, and may be repeated after a lost response. It returns whether the job has
// this result; false means that another process has taken the job over, and nothing was written.

/** Completes the job, captures its hold and erases the text (R18). */
export async function completeJob(
  db: Database,
  job: Owned,
  result: { readonly mimeType: AudioType; readonly sizeBytes: number; readonly upstream?: UpstreamUsage | undefined },
  retentionSeconds: number,
): Promise<boolean> {
  return end(db, job, 'completed', async (trx) => {
    const { mimeType: mime_type, sizeBytes: size_bytes } = result;
    await update(trx, job, { ...ended('completed', retentionSeconds), mime_type, size_bytes });
    if (!(await captureHold(trx, { ...hold(job), upstream: result.upstream }))) throw new Error(HOLD_ENDED);
  });
}

/** Fails the job, voids its hold, which refunds the account (R55), and erases the text (R18). */
export async function failJob(
  db: Database,
  job: Owned,
  error: { readonly code: string; readonly message: string },
  retentionSeconds: number,
): Promise<boolean> {
  return end(db, job, 'failed', async (trx) => {
    const { code: error_code, message: error_message } = error;
    await update(trx, job, { ...ended('failed', retentionSeconds), error_code, error_message });
    if (!(await voidHold(trx, hold(job))).isVoided) throw new Error(HOLD_ENDED);
  });
}

export async function requeueJob(
  db: Database,
  job: Owned,
  { delayMs, uncounted }: { readonly delayMs: number; readonly uncounted?: boolean },
): Promise<boolean> {
  return end(db, job, 'queued', async (trx) => {
    await update(trx, job, {
      state: 'queued',
      lease_until: null,
      run_at: secondsFromNow(delayMs / 1000),
      attempts: (eb) => eb('attempts', '-', uncounted ? 1 : 0),
      updated_at: now,
    });
    await enqueue(trx, job.jobId);
  });
}

async function end(db: Database, { jobId, fence }: Owned, as: string, write: (trx: Database) => Promise<void>) {
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

const update = (trx: Database, { jobId }: Owned, set: UpdateObject<DB, 'job'>) =>
  trx.updateTable('job').set(set).where('id', '=', jobId).execute();

const hold = ({ holdId, accountId, fence }: Owned) => ({ id: holdId, accountId, fence });

/**
 * A completed job's audio is kept, unless `storeAudio` is false (R18). Audio that earlier attempts of a failed job stored
 * expires like that of a completed job; unneeded segments at once.
 */
const ended = (state: 'completed' | 'failed', retentionSeconds: number) => ({
  state,
  text: null,
  lease_until: null,
  completed_at: now,
  updated_at: now,
  audio_expires_at: (eb: ExpressionBuilder<DB, 'job'>) => {
    const isUnneeded = state === 'failed' ? eb.lit(true) : eb('store_audio', '=', false);
    const isSegmented = eb.exists(eb.selectFrom('job_segment').whereRef('job_id', '=', 'job.id'));
    return eb
      .case()
      .when(eb.and([isUnneeded, isSegmented]))
      .then(now)
      .when('store_audio', '=', true)
      .then(secondsFromNow(retentionSeconds))
      .end();
  },
});
