import type { AudioStore } from '../audio/store.ts';
import type { Config } from '../config.ts';
import type { Database } from '../db/database.ts';
import { Processor } from '../top-up/processor.ts';
import { Purchases } from '../top-up/purchase.ts';
import type { OpenPayments } from '../x402/open-payments.ts';
import { abandonedPayments } from './abandoned-payments.ts';
import { checkoutSweep } from './checkout-sweep.ts';
import { doubtfulPayments } from './doubtful-payments.ts';
import { expiredAudio } from './expired-audio.ts';
import { expiredHolds } from './expired-holds.ts';
import { failedPayments } from './failed-payments.ts';
import { lostJobs } from './lost-jobs.ts';
import { lostMail } from './lost-mail.ts';
import { oldFeedback, unpaidPurchases } from './old-rows.ts';
import { paymentAudio } from './payment-audio.ts';
import type { Reconciler } from './reconciler.ts';
import { topUps } from './top-ups.ts';
import { undelivered } from './undelivered.ts';

/**
 * The reconcilers of the flows that are on.
 * @param x402 undefined while direct payment is off
 */
export function createReconcilers(
  { baseUrl, serviceName, card, feedback }: Config,
  db: Database,
  store: AudioStore,
  x402?: OpenPayments,
): Reconciler[] {
  const reconcilers = [expiredHolds(db), undelivered(db), lostJobs(db), expiredAudio(db, store)];
  if (card) {
    // The next turn is the retry.
    const processor = new Processor(card.secretKey, card.apiBase, { retries: 0 });
    const purchases = new Purchases(db, processor, { baseUrl, serviceName });
    reconcilers.push(topUps(db, processor, purchases), checkoutSweep(db, processor, purchases), unpaidPurchases(db));
  }
  if (feedback) reconcilers.push(oldFeedback(db, feedback.retentionDays));
  if (feedback?.mail) reconcilers.push(lostMail(db));
  if (x402) {
    const { reservations, outcomes, resolver } = x402;
    reconcilers.push(
      abandonedPayments(reservations, store),
      doubtfulPayments(outcomes, resolver),
      failedPayments(outcomes, resolver),
      paymentAudio(db, store),
    );
  }
  return reconcilers;
}
