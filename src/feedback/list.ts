import { type RawBuilder, sql } from 'kysely';
import type { Database } from '../db/database.ts';
import type { Details } from './content.ts';
import type { Notification } from './submit.ts';

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

export async function* listFeedback(db: Database): AsyncGenerator<FeedbackRecord> {
  let after: RawBuilder<boolean> | undefined;
  for (;;) {
    const batch = db
      .selectFrom('feedback')
      .select(['id as feedbackId', 'received_at as receivedAt', 'wallet', 'category', 'message', 'details'])
      .select(['trace_id as traceId', 'signing_message as signingMessage', 'signature', 'notification'])
      .select(['mailed_at as mailedAt', sql<string>`received_at::text`.as('position')])
      .orderBy('received_at')
      .orderBy('id')
      .limit(BATCH)
      .$narrowType<{ details: Details | null; notification: Notification }>();
    const rows = await (after ? batch.where(after) : batch).execute();
    for (const { position, ...record } of rows) {
      yield record;
      after = sql`(received_at, id) > (${position}::timestamptz, ${record.feedbackId}::uuid)`;
    }
    if (rows.length < BATCH) return;
  }
}
