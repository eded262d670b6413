import { sql } from 'kysely';
import type { Database } from '../db/database.ts';
import type { Details } from './content.ts';
import type { Notification } from './record.ts';

/** A record with what proves it, and what became of the mail about it. */
export interface FeedbackRecord {
  readonly feedbackId: string;
  readonly receivedAt: Date;
  readonly wallet: string;
  readonly category: string;
  readonly message: string;
  readonly details: Details | null;
  readonly traceId: string;
  readonly signingMessage: string;
  readonly signature: string;
  readonly notification: Notification;
  readonly mailedAt: Date | null;
}

const BATCH = 200;

/** All that was stored, from the oldest on, read in batches. */
export async function* listFeedback(db: Database): AsyncGenerator<FeedbackRecord> {
  let last: { received_at: string; id: string } | undefined;
  for (;;) {
    const { rows } = await sql<Row>`
      select id as "feedbackId", received_at as "receivedAt", wallet, category, message, details, trace_id as "traceId",
             signing_message as "signingMessage", signature, notification, mailed_at as "mailedAt",
             received_at::text as position
      from feedback
      where ${last ? sql`(received_at, id) > (${last.received_at}::timestamptz, ${last.id}::uuid)` : sql`true`}
      order by received_at, id limit ${BATCH}`.execute(db);
    for (const { position, ...record } of rows) {
      yield record;
      last = { received_at: position, id: record.feedbackId };
    }
    if (rows.length < BATCH) return;
  }
}

interface Row extends FeedbackRecord {
  /** received_at with its microseconds. */
  readonly position: string;
}
