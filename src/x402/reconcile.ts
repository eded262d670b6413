import type { AudioStore } from '../audio/store.ts';
import { paymentAudioKey } from './audio-key.ts';
import type { Payment, Payments } from './payment.ts';
import type { Settlement } from './settlement.ts';

/** What one pass has done, in payments. */
export interface ReconcileCounts {
  /** Reservations of dead processes that were freed. */
  released: number;
  settled: number;
  failed: number;
  /** Whose end the chain can't tell yet. */
  open: number;
  /** Whose audio was deleted. */
  forgotten: number;
}

/** Payments of each kind that one pass takes on, at most. */
const MOST = 200;

/**
 * Finishes what lost answers and dead processes have left of payments: frees reservations whose lease has passed, asks
 * the chain about those whose settlement has no known end or was refused, and deletes audio that nobody can ask for any
 * more. Safe to run at any time and in several processes at once.
 */
export async function reconcilePayments(
  { payments, settlement, store }: { payments: Payments; settlement: Settlement; store: AudioStore },
  signal: AbortSignal,
): Promise<ReconcileCounts> {
  const counts: ReconcileCounts = { released: 0, settled: 0, failed: 0, open: 0, forgotten: 0 };

  for (const abandoned of await payments.findAbandoned(MOST)) {
    if (signal.aborted) return counts;
    // Taken over first, so that its process, should it live after all, can't settle while the audio is deleted.
    const payment = await payments.takeOver(abandoned, abandoned.headBlock);
    if (!payment) continue;
    await deleteAudio(store, payment);
    if (await payments.release(payment)) counts.released += 1;
  }

  const since = await payments.now();
  for (let checks = 0; checks < MOST && !signal.aborted; checks++) {
    const payment = await payments.claimNextCheck(since);
    if (!payment) break;
    const { outcome } = await settlement.resolveClaimed(payment);
    counts[outcome] += 1;
  }

  for (const payment of await payments.findAudioToDelete(MOST)) {
    if (signal.aborted) return counts;
    await deleteAudio(store, payment);
    await payments.markAudioDeleted(payment);
    counts.forgotten += 1;
  }
  return counts;
}

/** Also what former owners of the reservation may have stored. */
async function deleteAudio(store: AudioStore, { id, fence }: Payment): Promise<void> {
  for (let owner = 1; owner <= fence; owner++) await store.delete(paymentAudioKey(id, owner));
}
