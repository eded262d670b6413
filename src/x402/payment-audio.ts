import type { AudioStore } from '../audio/store.ts';
import type { Payment } from './payment.ts';

/** Where the audio of a payment is kept. Whoever takes a reservation over has a fence, and so an object, of its own. */
export const paymentAudioKey = ({ id, fence }: Pick<Payment, 'id' | 'fence'>): string => `x402/${id}-${fence}`;

/** Deletes the audio of a payment, also what former owners of its reservation may have stored. */
export async function deletePaymentAudio(store: AudioStore, { id, fence }: Payment): Promise<void> {
  for (let owner = 1; owner <= fence; owner++) await store.delete(paymentAudioKey({ id, fence: owner }));
}
