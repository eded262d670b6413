import type { AudioStore } from '../audio/audio-store.ts';
import { testPoint } from '../lib/test-point.ts';
import { deletePaymentAudio } from '../x402/payment-audio.ts';
import type { Reservations } from '../x402/reservations.ts';
import { Failures } from './failures.ts';
import type { Reconciler } from './reconciler.ts';

const MOST = 200;

/** Frees the reservations of dead processes: identifier and authorization may be used again (R26). Counts reservations. */
export function abandonedPayments(reservations: Reservations, store: AudioStore): Reconciler {
  return {
    name: 'abandoned_payments',
    async run({ signal, done }) {
      const failures = new Failures();
      for (const abandoned of await reservations.findAbandoned(MOST)) {
        if (signal.aborted) break;
        try {
          // Taken over first, so that its process, should it live after all, can't settle while the audio is deleted.
          const payment = await reservations.takeOver(abandoned, abandoned.headBlock);
          if (!payment) continue;
          testPoint('reservation taken over');
          await deletePaymentAudio(store, payment);
          testPoint('reservation without audio');
          if (await reservations.release(payment)) done(1);
        } catch (error) {
          failures.add(error);
        }
      }
      failures.check();
    },
  };
}
