import { sql } from 'kysely';
import type { Database } from '../db/database.ts';

/** The task's name in graphile_worker's queue. */
export const MAIL_TASK = 'feedback-mail';

export interface MailTaskPayload {
  readonly feedbackId: string;
}

/** An entry that was taken so long ago, while nobody holds the record's lock, is one of a process that is gone. */
const ABANDONED_AFTER_SECONDS = 30;
const BATCH = 1000;
/** Of one mail. graphile_worker waits between them, from 3 seconds at first to 6 hours at last: some days in all. */
const MAX_ATTEMPTS = 25;

/** Has a worker mail the feedback, as part of the caller's transaction. */
export async function enqueueMail(db: Database, feedbackId: string): Promise<void> {
  await sql`
    select graphile_worker.add_job(
      ${MAIL_TASK}, json_build_object('feedbackId', ${feedbackId}::uuid), job_key => ${entryKey(feedbackId)},
      max_attempts => ${MAX_ATTEMPTS})`.execute(db);
}

/**
 * The safety net under the queue: enters feedback again whose entry is gone, or was taken by a process that died
 * (graphile_worker itself waits for 4 hours). Tells how many there were. An entry that ran out of attempts stays so.
 */
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
