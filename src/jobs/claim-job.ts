import type { NotNull } from 'kysely';
import type { Database } from '../db/database.ts';
import { now, secondsFromNow, secondsSince, unnest } from '../db/expressions.ts';
import { LEASE_SECONDS, LeaseRenewer } from '../db/lease.ts';
import { takeOverHolds } from '../ledger/hold.ts';
import type { Utterance } from '../speech/provider.ts';

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

/** Claims a job that is queued and due (R18), and raises the fence of job and hold; otherwise returns undefined. */
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
