import type { Database } from '../db/database.ts';
import { timestamp } from '../db/expressions.ts';
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
  const first = db
    .selectFrom('feedback')
    .select(['id as feedbackId', 'received_at as receivedAt', 'wallet', 'category', 'message', 'details'])
    .select(['trace_id as traceId', 'signing_message as signingMessage', 'signature', 'notification'])
    .select((eb) => ['mailed_at as mailedAt', eb.cast<string>('received_at', 'text').as('position')])
    .orderBy('received_at')
    .orderBy('id')
    .limit(BATCH)
    .$narrowType<{ details: Details | null; notification: Notification }>();
  for (let batch = first; ; ) {
    const rows = await batch.execute();
    for (const { position: _, ...record } of rows) yield record;
    const last = rows.at(-1);
    if (!last || rows.length < BATCH) return;
    batch = first.where(({ eb, refTuple, tuple }) =>
      eb(refTuple('received_at', 'id'), '>', tuple(timestamp(last.position), last.feedbackId)),
    );
  }
}
