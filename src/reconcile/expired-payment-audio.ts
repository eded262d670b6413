import type { AudioStore } from '../audio/audio-store.ts';
import type { Database } from '../db/database.ts';
import { deletePaymentAudio, findAudioToDelete, markAudioDeleted } from '../x402/payment-audio.ts';
import { Failures } from './failures.ts';
import type { Reconciler } from './reconciler.ts';

const MOST = 200;

/** Deletes the audio of payments that have failed, or whose replay window is over. Counts payments. */
export function expiredPaymentAudio(db: Database, store: AudioStore): Reconciler {
  return {
    name: 'payment_audio',
    async run({ signal, done }) {
      const failures = new Failures();
      for (const payment of await findAudioToDelete(db, MOST)) {
        if (signal.aborted) break;
        try {
          await deletePaymentAudio(store, payment);
          await markAudioDeleted(db, payment);
          done(1);
        } catch (error) {
          failures.add(error);
        }
      }
      failures.check();
    },
  };
}
