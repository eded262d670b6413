import { sql } from 'kysely';
import type { Database } from '../db/database.ts';
import { testPoint } from '../lib/test-point.ts';
import type { FeedbackContent } from './content.ts';
import type { Challenge } from './feedback-challenge.ts';
import { enqueueMail } from './outbox.ts';

/** Feedback that is stored per wallet within any 24 hours (specification, "Limits"). */
export const MAX_PER_DAY = 5;
/** The advisory lock that puts submissions in order: any number that nothing else in this database locks. */
const SUBMISSION_LOCK = 7_300_006;

/** Feedback whose challenge and signature hold. */
export interface SignedFeedback {
  readonly content: FeedbackContent;
  readonly challenge: Challenge;
  readonly signingMessage: string;
  readonly signature: string;
  readonly traceId: string;
}

export type Notification = 'queued' | 'not_configured';

export type RecordResult =
  | { readonly outcome: 'stored'; readonly feedbackId: string; readonly receivedAt: Date }
  | { readonly outcome: 'replayed' }
  | { readonly outcome: 'expired' }
  | {
      readonly outcome: 'too_many';
      /** Whose limit it is: the wallet's own, or that of all wallets together. */
      readonly of: 'wallet' | 'all';
      readonly retryAfterSeconds: number;
    };

export interface RecordOptions {
  readonly notification: Notification;
  /** Feedback of all wallets together that is stored within any hour: a wallet costs nothing, a mail is read by people. */
  readonly maxPerHour: number;
}

/**
 * Stores the feedback, uses up its challenge and queues the mail about it, all or nothing. Submissions take
 * turns, so that a challenge is used once and the limits are exact; the database's clock is read when it is their
 * turn. A refused submission leaves its challenge as it was.
 */
export async function recordFeedback(
  db: Database,
  { content, challenge, ...proof }: SignedFeedback,
  { notification, maxPerHour }: RecordOptions,
): Promise<RecordResult> {
  return db.transaction().execute(async (trx): Promise<RecordResult> => {
    await sql`select pg_advisory_xact_lock(${SUBMISSION_LOCK})`.execute(trx);
    const { at, replayed, expired, wait, wait_of_all } = await readLimits(trx, challenge, maxPerHour);
    if (replayed) return { outcome: 'replayed' };
    if (expired) return { outcome: 'expired' };
    if (wait !== null) return { outcome: 'too_many', of: 'wallet', retryAfterSeconds: wait };
    if (wait_of_all !== null) return { outcome: 'too_many', of: 'all', retryAfterSeconds: wait_of_all };
    const { id, received_at } = await trx
      .insertInto('feedback')
      .values({
        nonce: challenge.nonce,
        wallet: content.wallet,
        category: content.category,
        message: content.message,
        details: content.details === undefined ? null : JSON.stringify(content.details),
        signing_message: proof.signingMessage,
        signature: proof.signature,
        trace_id: proof.traceId,
        received_at: at,
        notification,
      })
      .returning(['id', 'received_at'])
      .executeTakeFirstOrThrow();
    testPoint('feedback written');
    if (notification === 'queued') await enqueueMail(trx, id);
    return { outcome: 'stored', feedbackId: id, receivedAt: received_at };
  });
}

/** What a submission is held against. */
interface SubmissionLimits {
  /** The database's time with its microseconds, as text. */
  readonly at: string;
  readonly replayed: boolean;
  readonly expired: boolean;
  /** Whole seconds until the wallet may send again; null when it may now. */
  readonly wait: number | null;
  /** Likewise until any wallet may. */
  readonly wait_of_all: number | null;
}

async function readLimits(
  db: Database,
  { wallet, nonce, expiresAt }: Challenge,
  maxPerHour: number,
): Promise<SubmissionLimits> {
  const { rows } = await sql<SubmissionLimits>`
    with clock as materialized (select clock_timestamp() as at)
    select at::text as at,
           exists (select from feedback where nonce = ${nonce}::uuid) as replayed,
           at >= ${expiresAt}::timestamptz as expired,
           (select ceil(extract(epoch from received_at + interval '24 hours' - at))::int from feedback
            where wallet = ${wallet} and received_at > at - interval '24 hours'
            order by received_at desc offset ${MAX_PER_DAY - 1} limit 1) as wait,
           (select ceil(extract(epoch from received_at + interval '1 hour' - at))::int from feedback
            where received_at > at - interval '1 hour'
            order by received_at desc offset ${maxPerHour - 1} limit 1) as wait_of_all
    from clock`.execute(db);
  return rows[0] as SubmissionLimits;
}
