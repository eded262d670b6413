import type { AudioStore } from '../audio/audio-store.ts';
import type { Database } from '../db/database.ts';
import { deleteLostAnswers, expiredLostAnswers } from '../ledger/lost-answers.ts';
import { lostAnswerKey } from '../payments/lost-answers.ts';
import { expiredObjects } from './expired-objects.ts';
import type { Reconciler } from './reconciler.ts';

/** Deletes the audio of answers that did not arrive, once its time is over. */
export const expiredLostAnswerAudio = (db: Database, store: AudioStore): Reconciler =>
  expiredObjects('lost_answers', {
    find: (limit) => expiredLostAnswers(db, limit),
    deleteObject: (id) => store.delete(lostAnswerKey(id)),
    forget: (ids) => deleteLostAnswers(db, ids),
  });
