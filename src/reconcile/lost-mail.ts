import type { Database } from '../db/database.ts';
import { requeueLostMail } from '../feedback/outbox.ts';
import type { Reconciler } from './reconciler.ts';

/** Queues feedback again whose mail the queue has lost, or a dead process had taken. Counts feedback. */
export function lostMail(db: Database): Reconciler {
  return {
    name: 'lost_mail',
    run: async ({ done }) => done(await requeueLostMail(db)),
  };
}
