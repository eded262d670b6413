import type { AudioStore } from '../audio/audio-store.ts';
import type { Database } from '../db/database.ts';
import { deleteLostAnswers, expiredLostAnswers } from '../ledger/lost-answers.ts';
import { eachOf } from '../lib/each-of.ts';
import { lostAnswerKey } from '../payments/lost-answers.ts';
import { Failures } from './failures.ts';
import type { Reconciler } from './reconciler.ts';

const BATCH = 200;
/** Objects that are deleted at a time: a bucket takes long for each. */
const CONCURRENCY = 8;

/** Deletes the audio of answers that did not arrive, once its time is over. Counts answers. */
export function expiredLostAnswerAudio(db: Database, store: AudioStore): Reconciler {
  return {
    name: 'lost_answers',
    async run({ signal, done }) {
      const failures = new Failures();
      for (let isMore = true; isMore && !signal.aborted; ) {
        const ids = await expiredLostAnswers(db, BATCH);
        const deleted: string[] = [];
        try {
          await eachOf(ids, CONCURRENCY, async (id) => {
            if (signal.aborted) return;
            try {
              await store.delete(lostAnswerKey(id));
              deleted.push(id);
            } catch (error) {
              failures.add(error);
            }
          });
        } finally {
          await deleteLostAnswers(db, deleted);
          done(deleted.length);
        }
        failures.check();
        isMore = ids.length === BATCH;
      }
    },
  };
}
