import type { AudioStore } from '../audio/audio-store.ts';
import type { Database } from '../db/database.ts';
import { deletePaymentAudio, findAudioToDelete, markAudioDeleted } from '../x402/payment-audio.ts';
import { expiredObjects } from './expired-objects.ts';
import type { Reconciler } from './reconciler.ts';

/** Deletes the audio of payments that have failed, or whose replay window is over. */
export const expiredPaymentAudio = (db: Database, store: AudioStore): Reconciler =>
  expiredObjects('payment_audio', {
    find: (limit) => findAudioToDelete(db, limit),
    deleteObject: (payment) => deletePaymentAudio(store, payment),
    forget: (payments) => markAudioDeleted(db, payments),
  });
