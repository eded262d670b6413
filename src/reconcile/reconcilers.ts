import type { Config } from '../config/config.ts';
import type { FeedbackConfig } from '../config/feedback-settings.ts';
import type { Database } from '../db/database.ts';
import { Clawbacks } from '../payments/top-up/clawbacks.ts';
import { Processor, type ProcessorOptions } from '../payments/top-up/processor.ts';
import { Purchases } from '../payments/top-up/purchases.ts';
import type { OpenPayments } from '../payments/x402/resolver.ts';
import type { AudioStore } from '../speech/store/audio-store.ts';
import { clawbackSweep, debts, openClawbacks } from './clawbacks.ts';
import { expiredJobAudio, expiredPaymentAudio, expiredPrepaidAudio } from './expired-audio.ts';
import { expiredHolds, lostJobs, lostMail, oldFeedback, unpaidPurchases } from './old-rows.ts';
import type { Reconciler } from './reconciler.ts';
import { checkoutSweep, topUps } from './top-ups.ts';
import { abandonedPayments, doubtfulPayments, failedPayments } from './x402-payments.ts';

export const ledgerReconcilers = (db: Database, leaseSeconds: number): Reconciler[] => [
  expiredHolds(db, leaseSeconds),
  debts(db),
];

export const jobReconcilers = (db: Database, store: AudioStore): Reconciler[] => [
  lostJobs(db),
  expiredJobAudio(db, store),
  expiredPrepaidAudio(store),
];

export function cardReconcilers(
  db: Database,
  { baseUrl, serviceName, card }: Config,
  reporting: Pick<ProcessorOptions, 'onRefused' | 'calls'> = {},
): Reconciler[] {
  if (!card) return [];
  // The next turn is the retry.
  const processor = new Processor(card.secretKey, card.apiBase, { retries: 0, ...reporting });
  const purchases = new Purchases(db, processor, { baseUrl, serviceName });
  const clawbacks = new Clawbacks(db, processor, purchases);
  return [
    topUps(db, processor, purchases),
    checkoutSweep(db, processor, purchases),
    clawbackSweep(db, processor, clawbacks),
    openClawbacks(db, clawbacks),
    unpaidPurchases(db),
  ];
}

export function feedbackReconcilers(db: Database, feedback: FeedbackConfig | undefined): Reconciler[] {
  if (!feedback) return [];
  return [oldFeedback(db, feedback.retentionDays), ...(feedback.mail ? [lostMail(db)] : [])];
}

export const x402Reconcilers = (
  db: Database,
  { reservations, states, resolver }: OpenPayments,
  store: AudioStore,
): Reconciler[] => [
  abandonedPayments(reservations),
  doubtfulPayments(states, resolver),
  failedPayments(states, resolver),
  expiredPaymentAudio(db, store),
];

export const createReconcilers = (
  config: Config,
  db: Database,
  store: AudioStore,
  x402?: OpenPayments,
): Reconciler[] => [
  ...ledgerReconcilers(db, config.holdLeaseSeconds),
  ...jobReconcilers(db, store),
  ...cardReconcilers(db, config),
  ...feedbackReconcilers(db, config.feedback),
  ...(x402 ? x402Reconcilers(db, x402, store) : []),
];
