import { sql } from 'kysely';
import type { Database } from '../db/database.ts';
import { anyFrom, daysAgo } from '../db/expressions.ts';

export const MAIL_TASK = 'feedback-mail';

export interface MailTaskPayload {
  readonly feedbackId: string;
}

/** An entry locked for this long belongs to a dead process, unless the feedback row is locked. */
const ABANDONED_AFTER_SECONDS = 30;
const BATCH = 1000;
/** graphile_worker backs off between attempts from 3 seconds up to 6 hours: several days in all. */
const MAX_ATTEMPTS = 25;

export async function enqueueMail(db: Database, feedbackId: string): Promise<void> {
  const entry = sql`graphile_worker.add_job(
    ${MAIL_TASK}, json_build_object('feedbackId', ${feedbackId}::uuid), job_key => ${entryKey(feedbackId)},
    max_attempts => ${MAX_ATTEMPTS})`;
  await db.selectNoFrom(entry.as('entry')).execute();
}

/** Requeues feedback whose queue entry is missing or belongs to a dead process. Returns the count. */
export async function requeueLostMail(db: Database): Promise<number> {
  const { rows } = await sql`
    with lost as (
      select feedback.id, 'feedback ' || feedback.id as entry_key
      from feedback left join graphile_worker.jobs entry on entry.key = 'feedback ' || feedback.id
      where feedback.notification = 'queued' and feedback.mailed_at is null
        and (entry.id is null or lease_has_ended(entry.locked_at + make_interval(secs => ${ABANDONED_AFTER_SECONDS}), ${ABANDONED_AFTER_SECONDS}))
      limit ${BATCH} for update of feedback skip locked
    )
    select graphile_worker.add_job(${MAIL_TASK}, json_build_object('feedbackId', id), job_key => entry_key,
      max_attempts => ${MAX_ATTEMPTS})
    from lost`.execute(db);
  return rows.length;
}

const entryKey = (feedbackId: string) => `feedback ${feedbackId}`;

const PRUNE_BATCH = 1000;

/** Deletes a batch of feedback older than `retentionDays`, except what is still to be mailed. Returns the count. */
export async function pruneFeedback(db: Database, retentionDays: number): Promise<number> {
  const old = db
    .selectFrom('feedback')
    .select('id')
    .where('received_at', '<', daysAgo(retentionDays))
    .where((eb) => eb.or([eb('notification', '<>', 'queued'), eb('mailed_at', 'is not', null)]))
    .orderBy('received_at')
    .limit(PRUNE_BATCH);
  const feedback = db.deleteFrom('feedback').where('id', '=', anyFrom(old.forUpdate().skipLocked()));
  return Number((await feedback.executeTakeFirstOrThrow()).numDeletedRows);
}

export async function eraseFeedback(db: Database, wallet: string): Promise<number> {
  const { numDeletedRows } = await db.deleteFrom('feedback').where('wallet', '=', wallet).executeTakeFirstOrThrow();
  return Number(numDeletedRows);
}
