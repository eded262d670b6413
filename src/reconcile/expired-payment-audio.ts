import type { AudioStore } from '../audio/audio-store.ts';
import type { Database } from '../db/database.ts';
import { eachOf } from '../lib/each-of.ts';
import type { Payment } from '../x402/payment.ts';
import { deletePaymentAudio, findAudioToDelete, markAudioDeleted } from '../x402/payment-audio.ts';
import { Failures } from './failures.ts';
import type { Reconciler } from './reconciler.ts';

const BATCH = 200;
/** Objects that are deleted at a time: a bucket takes long for each. */
const CONCURRENCY = 8;

/** Deletes the audio of payments that have failed, or whose replay window is over. Counts payments. */
export function expiredPaymentAudio(db: Database, store: AudioStore): Reconciler {
  return {
    name: 'payment_audio',
    async run({ signal, done }) {
      const failures = new Failures();
      for (let isMore = true; isMore && !signal.aborted; ) {
        const payments = await findAudioToDelete(db, BATCH);
        const deleted: Payment[] = [];
        try {
          await eachOf(payments, CONCURRENCY, async (payment) => {
            if (signal.aborted) return;
            try {
              await deletePaymentAudio(store, payment);
              deleted.push(payment);
            } catch (error) {
              failures.add(error);
            }
          });
        } finally {
          await markAudioDeleted(db, deleted);
          done(deleted.length);
        }
        failures.check();
        isMore = payments.length === BATCH;
      }
    },
  };
}
