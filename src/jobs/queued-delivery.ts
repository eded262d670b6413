import type { Database } from '../db/database.ts';
import { testPoint } from '../lib/test-point.ts';
import { tracing } from '../observability/tracing.ts';
import type { CardHold, CardReceipt } from '../payments/card-credits.ts';
import type { Delivery, Earlier } from '../payments/delivery.ts';
import type { Replayed } from '../payments/payment-flow.ts';
import type { Refused } from '../payments/refusal.ts';
import type { Utterance } from '../speech/provider.ts';
import type { SpeechAdmission } from '../speech/speech-admission.ts';
import { addEntry } from './enqueue.ts';
import { JOB_COLUMNS, jobOf } from './find-job.ts';
import { findEarlier, idempotencyOf, type RepeatableRequest } from './idempotency.ts';
import type { Job } from './job.ts';
import { nextTurn } from './turn.ts';

/** What an asynchronous request says, and how it is traced. */
export interface JobRequest extends RepeatableRequest {
  readonly utterance: Utterance;
  readonly traceId: string;
}

export interface JobQueue {
  readonly db: Database;
  readonly admission: SpeechAdmission;
  /** Of the processor's key: an account of the other mode is unknown. */
  readonly livemode: boolean;
}

/** The job of an earlier request, where nothing new is queued; undefined when there is none. */
export async function findPreviousJob(
  db: Database,
  livemode: boolean | undefined,
  request: RepeatableRequest,
): Promise<Replayed<Job, CardReceipt> | Refused<'INVALID_REQUEST'> | undefined> {
  const earlier = await db.transaction().execute((trx) => findEarlier(trx, livemode, request));
  // Who can't pay is told that nothing is sold.
  return earlier?.outcome === 'refused' && !isOfKey(earlier) ? undefined : earlier;
}

/**
 * Queues the text as a job that owns the hold: both are there, or neither. A repeat under the same idempotency key finds
 * the job of the first, with nothing debited again (R17): requests of one account take turns, and the key is unique in
 * the database.
 */
export const queued = ({ db, admission, livemode }: JobQueue, request: JobRequest): Delivery<CardHold, Job, Job> => ({
  admit: (utterance) =>
    admission.refuse(utterance) ?? {
      deliver: async (hold, trx) => ({
        outcome: 'delivered',
        delivered: await insertJob(trx as Database, hold, request),
      }),
      release: () => {},
    },
  within: async (sell) => {
    const sold = await db
      .transaction()
      .execute(async (trx) => (await findEarlier(trx, livemode, request)) ?? (await sell(trx)));
    testPoint('job accepted');
    return sold;
  },
});

const isOfKey = (refusal: Earlier): refusal is Refused<'INVALID_REQUEST'> => refusal.code === 'INVALID_REQUEST';

async function insertJob(trx: Database, { entry }: CardHold, request: JobRequest): Promise<Job> {
  const repeatable = idempotencyOf(request, entry.accountId);
  const { text, model, voice, speed } = request.utterance;
  const row = await trx
    .with('accepted', (db) =>
      db
        .insertInto('job')
        .values({
          account_id: entry.accountId,
          hold_id: entry.id,
          fence: entry.fence,
          trace_id: request.traceId,
          traceparent: tracing()?.traceparent() ?? null,
          ...{ text, model, voice, speed },
          store_audio: request.storeAudio,
          idempotency_key: repeatable?.key ?? null,
          request_hash: repeatable?.spoken ?? null,
          sent_hash: repeatable?.sent ?? null,
          turn: nextTurn(entry.accountId),
        })
        .returningAll(),
    )
    .selectFrom('accepted')
    .select([...JOB_COLUMNS, addEntry.as('entry')])
    .executeTakeFirstOrThrow();
  testPoint('job accepting');
  return jobOf(row);
}
