import type { AudioStore } from '../audio/audio-store.ts';
import type { Database } from '../db/database.ts';
import { auditResults } from '../ledger/audit-result.ts';
import { totalDebt } from '../ledger/debt.ts';
import type { Metrics } from '../observability/metrics.ts';
import { paymentsInDoubt } from '../x402/doubtful-count.ts';
import type { SigningKey } from '../x402/signing-keys.ts';

/** Shows operators what the last audits came to, and what is owed to them. */
export function addBookGauges(metrics: Metrics, db: Database): void {
  metrics.addGauges(
    'shared',
    {
      speechgate_audit_broken_rules: 'Rules that the last audit found broken, of the books or of the outside.',
      speechgate_audit_age_seconds: 'How long ago that audit ended.',
    },
    async () => {
      const results = await auditResults(db);
      return {
        speechgate_audit_broken_rules: Object.fromEntries(results.map(({ kind, brokenRules }) => [kind, brokenRules])),
        speechgate_audit_age_seconds: Object.fromEntries(results.map(({ kind, ageSeconds }) => [kind, ageSeconds])),
      };
    },
    'audit',
  );
  metrics.addGauges(
    'shared',
    { speechgate_debt_micro_usd: 'Micro-USD of credit that was taken back after it had been spent, and is owed.' },
    async () => ({ speechgate_debt_micro_usd: await totalDebt(db) }),
  );
}

/** Shows operators the payments of which nobody knows yet whether they were made. */
export function addPaymentGauges(metrics: Metrics, db: Database): void {
  metrics.addGauges(
    'shared',
    {
      speechgate_payments_in_doubt: 'Payments in USDC whose settlement was sent, and had no clear end.',
      speechgate_oldest_payment_in_doubt_seconds: 'Since the settlement of the oldest of them was sent.',
    },
    async () => {
      const { count, oldestSeconds } = await paymentsInDoubt(db);
      return { speechgate_payments_in_doubt: count, speechgate_oldest_payment_in_doubt_seconds: oldestSeconds };
    },
  );
}

/**
 * Shows operators whether the reconcilers have their turns.
 * @param intervals seconds between two turns, by reconciler
 * @param turnAges seconds since the last one
 */
export function addReconcilerGauges(
  metrics: Metrics,
  intervals: Record<string, number>,
  turnAges: () => Promise<Record<string, number>>,
): void {
  metrics.addGauges(
    'shared',
    {
      speechgate_reconciler_last_turn_seconds: 'How long ago the last turn began, in any process, by reconciler.',
      speechgate_reconciler_interval_seconds: 'How far apart the turns are meant to be, by reconciler.',
    },
    async () => ({
      speechgate_reconciler_last_turn_seconds: await turnAges(),
      speechgate_reconciler_interval_seconds: intervals,
    }),
    'reconciler',
  );
}

/** Shows operators how long the metadata can still be signed; has no value for a key without an end. */
export function addSigningKeyGauge(metrics: Metrics, { validUntil }: Pick<SigningKey, 'validUntil'>): void {
  if (!validUntil) return;
  metrics.addGauges(
    'shared',
    { speechgate_signing_key_seconds_left: 'Until the key ends that signs the metadata; below 0 it signs no more.' },
    async () => ({ speechgate_signing_key_seconds_left: (validUntil.getTime() - Date.now()) / 1000 }),
  );
}

/** Shows operators how full the file system of the stored audio is; a bucket has no such end. */
export function addAudioRoomGauges(metrics: Metrics, store: AudioStore): void {
  if (!store.room) return;
  const room = store.room.bind(store);
  metrics.addGauges(
    'shared',
    {
      speechgate_audio_free_bytes: 'Free room of the file system that stored audio is on.',
      speechgate_audio_size_bytes: 'Size of that file system.',
    },
    async () => {
      const { freeBytes, sizeBytes } = await room();
      return { speechgate_audio_free_bytes: freeBytes, speechgate_audio_size_bytes: sizeBytes };
    },
  );
}
