import type { AudioStore } from '../audio/audio-store.ts';
import type { Database } from '../db/database.ts';
import type { CredentialAlarm } from '../observability/credential-alarm.ts';
import type { Config } from '../settings/config.ts';
import type { FeedbackConfig } from '../settings/feedback-settings.ts';
import { Clawbacks } from '../top-up/clawbacks.ts';
import { Processor } from '../top-up/processor.ts';
import { Purchases } from '../top-up/purchases.ts';
import type { OpenPayments } from '../x402/open-payments.ts';
import { abandonedPayments } from './abandoned-payments.ts';
import { checkoutSweep } from './checkout-sweep.ts';
import { clawbackSweep, debts, openClawbacks } from './clawbacks.ts';
import { doubtfulPayments } from './doubtful-payments.ts';
import { expiredHolds } from './expired-holds.ts';
import { expiredJobAudio } from './expired-job-audio.ts';
import { expiredLostAnswerAudio } from './expired-lost-answers.ts';
import { expiredPaymentAudio } from './expired-payment-audio.ts';
import { failedPayments } from './failed-payments.ts';
import { lostJobs } from './lost-jobs.ts';
import { lostMail } from './lost-mail.ts';
import { oldFeedback, unpaidPurchases } from './old-rows.ts';
import type { Reconciler } from './reconciler.ts';
import { topUps } from './top-ups.ts';
import { undelivered } from './undelivered.ts';

/** Of every ledger. */
export const ledgerReconcilers = (db: Database, { speech }: Config): Reconciler[] => [
  expiredHolds(db, speech?.streaming.leaseSeconds ?? 0),
  undelivered(db),
  debts(db),
];

/** Of what is kept in the audio store whatever flow is on. */
export const jobReconcilers = (db: Database, store: AudioStore): Reconciler[] => [
  lostJobs(db),
  expiredJobAudio(db, store),
  expiredLostAnswerAudio(db, store),
];

/** None while payment by card is off. */
export function cardReconcilers(
  db: Database,
  { baseUrl, serviceName, card }: Config,
  onRefused?: CredentialAlarm,
): Reconciler[] {
  if (!card) return [];
  // The next turn is the retry.
  const processor = new Processor(card.secretKey, card.apiBase, { retries: 0, ...(onRefused && { onRefused }) });
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

/** None while feedback is off. */
export function feedbackReconcilers(db: Database, feedback: FeedbackConfig | undefined): Reconciler[] {
  if (!feedback) return [];
  return [oldFeedback(db, feedback.retentionDays), ...(feedback.mail ? [lostMail(db)] : [])];
}

export const x402Reconcilers = (
  db: Database,
  { reservations, outcomes, resolver }: OpenPayments,
  store: AudioStore,
): Reconciler[] => [
  abandonedPayments(reservations, store),
  doubtfulPayments(outcomes, resolver),
  failedPayments(outcomes, resolver),
  expiredPaymentAudio(db, store),
];

/**
 * The reconcilers of the flows that are on.
 * @param x402 undefined while direct payment is off
 */
export const createReconcilers = (
  config: Config,
  db: Database,
  store: AudioStore,
  x402?: OpenPayments,
): Reconciler[] => [
  ...ledgerReconcilers(db, config),
  ...jobReconcilers(db, store),
  ...cardReconcilers(db, config),
  ...feedbackReconcilers(db, config.feedback),
  ...(x402 ? x402Reconcilers(db, x402, store) : []),
];
