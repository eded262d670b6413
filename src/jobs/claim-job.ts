import type { ExpressionBuilder, NotNull, UpdateObject } from 'kysely';
import type { DB } from '../../db/tables.ts';
import type { Database } from '../db/database.ts';
import { now, secondsFromNow, secondsSince, unnest } from '../db/expressions.ts';
import { LEASE_SECONDS, LeaseRenewer } from '../db/lease.ts';
import { captureHold, takeOverHolds, type UpstreamUsage, voidHold } from '../ledger/hold.ts';
import type { AudioType, Utterance } from '../speech/provider.ts';
import { enqueue } from './turn.ts';

/** A job that this process owns. Its writes name the fence, and write nothing once a later claim has raised it. */
export interface Claim {
  readonly jobId: string;
  readonly traceId: string;
  readonly traceparent: string | null;
  readonly holdId: string;
  readonly accountId: string;
  readonly priceMicroUsd: bigint;
  readonly fence: number;
  readonly utterance: Utterance;
  readonly storeAudio: boolean;
  readonly isSegmented: boolean;
  readonly attempt: number;
  /** Since the first claim, or the last progress. */
  readonly elapsedMs: number;
}

/** Claims a job that is queued and due, and raises the fence of job and hold; otherwise returns undefined. */
export async function claimJob(db: Database, jobId: string): Promise<Claim | undefined> {
  const row = await db
    .with('claimed', (qb) =>
      qb
        .updateTable('job')
        .set((eb) => ({
          state: 'processing',
          lease_until: secondsFromNow(LEASE_SECONDS),
          fence: eb('fence', '+', 1),
          attempts: eb('attempts', '+', 1),
          started_at: eb.fn.coalesce('started_at', now),
          updated_at: now,
        }))
        .where('id', '=', jobId)
        .where('state', '=', 'queued')
        .where('run_at', '<=', now)
        .returningAll(),
    )
    .with('hold', (qb) => takeOverHolds(qb))
    .selectFrom(['claimed', 'hold'])
    .selectAll()
    .select((eb) => {
      const segments = eb.selectFrom('job_segment').whereRef('job_id', '=', 'claimed.id');
      const progressAt = segments.select(({ fn }) => fn.max('spoken_at').as('at'));
      const since = eb.fn<Date>('greatest', [eb.ref('started_at'), progressAt]);
      return [
        eb.cast<boolean>(eb.exists(segments), 'boolean').as('is_segmented'),
        eb(secondsSince(since), '*', 1000).as('elapsed_ms'),
      ];
    })
    .$narrowType<{ text: NotNull }>()
    .executeTakeFirst();
  return (
    row && {
      jobId,
      traceId: row.trace_id,
      traceparent: row.traceparent,
      holdId: row.hold_id,
      accountId: row.account_id,
      priceMicroUsd: row.amount_micro_usd,
      fence: row.fence,
      utterance: {
        ...{ text: row.text, model: row.model, voice: row.voice, speed: row.speed, modelId: row.model_id },
        traceId: row.trace_id,
      },
      storeAudio: row.store_audio,
      isSegmented: row.is_segmented,
      attempt: row.attempts,
      elapsedMs: row.elapsed_ms,
    }
  );
}

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
    if (!(await captureHold(trx, { ...hold(job), upstream: result.upstream })))
      throw new Error('the hold of a live job had ended');
  });
}

/** Fails the job, voids its hold and erases the text (R18). */
export async function failJob(
  db: Database,
  job: Owned,
  error: { readonly code: string; readonly message: string },
  retentionSeconds: number,
): Promise<boolean> {
  return end(db, job, 'failed', async (trx) => {
    const { code: error_code, message: error_message } = error;
    await update(trx, job, { ...ended('failed', retentionSeconds), error_code, error_message });
    if (!(await voidHold(trx, hold(job))).isVoided) throw new Error('the hold of a live job had ended');
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

/** Audio that earlier attempts of a failed job stored expires like that of a completed job; unneeded segments at once. */
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

/** A later claim of the same job is another lease, even in this process. */
const keyOf = (jobId: string, fence: number): string => `${jobId} ${fence}`;

export const jobLeases = (db: Database): LeaseRenewer<Claim> =>
  new LeaseRenewer({
    seconds: LEASE_SECONDS,
    keyOf: ({ jobId, fence }) => keyOf(jobId, fence),
    renew: async (claims) => {
      const claimed = unnest('claimed', {
        id: ['uuid', claims.map(({ jobId }) => jobId)],
        fence: ['integer', claims.map(({ fence }) => fence)],
      });
      const rows = await db
        .updateTable('job')
        .from(claimed)
        .set({ lease_until: secondsFromNow(LEASE_SECONDS) })
        .whereRef('job.id', '=', 'claimed.id')
        .whereRef('job.fence', '=', 'claimed.fence')
        .where('state', '=', 'processing')
        .returning(['job.id', 'job.fence'])
        .execute();
      return new Set(rows.map(({ id, fence }) => keyOf(id, fence)));
    },
  });
