import type { Pool } from 'pg';
import type { SigningKey } from '../../config/signing-keys.ts';
import type { Database } from '../../db/database.ts';
import { readReadiness } from '../../db/readiness.ts';
import { backlog } from '../../jobs/job.ts';
import { auditResults } from '../../ledger/audit.ts';
import { totalDebt } from '../../ledger/debts.ts';
import { pendingHolds } from '../../ledger/hold.ts';
import type { Metrics } from '../../observability/metrics.ts';
import type { DirectWork } from '../../payments/direct/direct-work.ts';
import type { Captures } from '../../payments/hold-placer.ts';
import type { NodeWatch } from '../../payments/x402/node-watch.ts';
import { paymentsInDoubt } from '../../payments/x402/payment-states.ts';
import type { AudioStore } from '../../speech/store/audio-store.ts';
import type { AudioMemory } from '../../speech/synthesis-permits.ts';

/** Less than a scrape waits for the values. */
const DATABASE_TIMEOUT_MS = 900;

export function addPoolGauges(metrics: Metrics, pool: Pool): void {
  // Read at once, before the other gauges use the pool.
  const read = async () => ({ total: pool.totalCount, idle: pool.idleCount, waiting: pool.waitingCount });
  metrics.addGauges('process', read, {
    speechgate_database_connections: ['Database connections of the pool.', 'total'],
    speechgate_database_idle_connections: ['Idle database connections of the pool.', 'idle'],
    speechgate_database_waiting: ['Statements that wait for a database connection.', 'waiting'],
  });
}

export function addBuildInfo(metrics: Metrics, version: string): void {
  const gauges = { speechgate_build_info: ['Always 1, with the version as a label.', 'ofVersion'] } as const;
  metrics.addGauges('shared', async () => ({ ofVersion: { [version]: 1 } }), gauges, 'version');
}

/** @param isReady whether this process is ready, besides the database */
export function addStateGauges(metrics: Metrics, db: Database, isReady: () => boolean): void {
  const read = async () => {
    const { outcome } = await readReadiness(db, DATABASE_TIMEOUT_MS);
    const isUp = outcome !== 'refused' && outcome !== 'unavailable';
    return { databaseUp: Number(isUp), ready: Number(outcome === 'ready' && isReady()) };
  };
  metrics.addGauges('worst', read, {
    speechgate_database_up: ['1 if the database answers within a second and accepts writes, 0 if not.', 'databaseUp'],
    speechgate_ready: ['1 if the process serves and its database is ready within a second, 0 if not.', 'ready'],
  });
}

export function addNodeGauge(metrics: Metrics, watch: NodeWatch): void {
  metrics.addGauges('shared', () => watch.newestBlockAge(), {
    speechgate_node_block_age_seconds: [
      'Age of the newest block of the chain that a node of X402_RPC_URL returned.',
      'seconds',
    ],
  });
}

export function addHoldGauges(metrics: Metrics, db: Database, captures: Captures): void {
  metrics.addGauges('process', async () => captures, {
    speechgate_waiting_captures: ['Delivered responses whose charge (capture) waits for the database.', 'waiting'],
  });
  metrics.addGauges('shared', () => pendingHolds(db), {
    speechgate_pending_holds: ['Pending holds: not yet captured or voided.', 'count'],
    speechgate_holds_past_lease: ['Pending holds whose lease has expired.', 'pastLease'],
    speechgate_oldest_hold_past_lease_seconds: [
      'Longest time since the lease of a pending hold expired; 0 if none has expired.',
      'oldestPastLeaseSeconds',
    ],
  });
}

export function addJobGauges(metrics: Metrics, db: Database): void {
  metrics.addGauges('shared', () => backlog(db), {
    speechgate_queued_jobs: ['Queued jobs, including those that wait for a retry.', 'queued'],
    speechgate_processing_jobs: ['Jobs that a worker has claimed.', 'processing'],
    speechgate_oldest_due_job_seconds: ['Waiting time of the job that has been due longest.', 'oldestDueSeconds'],
    speechgate_oldest_processing_job_seconds: [
      'Longest time since a running job began its attempt or stored a segment.',
      'oldestProcessingSeconds',
    ],
  });
}

export function addUnsettledWorkGauge(metrics: Metrics, work: DirectWork): void {
  const help = 'Seconds of work for direct payments that is running, or whose payment did not settle in the last hour.';
  metrics.addGauges('process', async () => work, { speechgate_unsettled_work_seconds: [help, 'unsettledSeconds'] });
}

export function addWaitingAudioGauge(metrics: Metrics, memory: AudioMemory): void {
  metrics.addGauges('process', async () => memory, {
    speechgate_waiting_audio_bytes: ['Audio in memory that callers have not received yet.', 'bytes'],
  });
}

export function addBookGauges(metrics: Metrics, db: Database): void {
  const readResults = async () => {
    const results = await auditResults(db);
    return {
      brokenRules: Object.fromEntries(results.map(({ kind, brokenRules }) => [kind, brokenRules])),
      ageSeconds: Object.fromEntries(results.map(({ kind, ageSeconds }) => [kind, ageSeconds])),
    };
  };
  const audits = {
    speechgate_audit_broken_rules: [
      'Broken rules that the last audit found, by kind of audit; speechgate audit lists them.',
      'brokenRules',
    ],
    speechgate_audit_age_seconds: ['Time since the last audit ended, by kind of audit.', 'ageSeconds'],
  } as const;
  metrics.addGauges('shared', readResults, audits, 'audit');
  metrics.addGauges('shared', async () => ({ debt: await totalDebt(db) }), {
    speechgate_debt_micro_usd: [
      'Total debt of card accounts: credit whose purchase was refunded or disputed after it was spent.',
      'debt',
    ],
  });
}

export function addPaymentGauges(metrics: Metrics, db: Database): void {
  metrics.addGauges('shared', () => paymentsInDoubt(db), {
    speechgate_payments_in_doubt: ['USDC payments whose settlement was sent but has no clear outcome.', 'count'],
    speechgate_oldest_payment_in_doubt_seconds: [
      'Time since the settlement of the oldest payment without a clear outcome was sent.',
      'oldestSeconds',
    ],
  });
}

/** @param intervals seconds between turns, by reconciler @param turnAges seconds since the last turn */
export function addReconcilerGauges(
  metrics: Metrics,
  intervals: Record<string, number>,
  turnAges: () => Promise<Record<string, number>>,
): void {
  const gauges = {
    speechgate_reconciler_last_turn_seconds: ['Time since the last run began in any process, by reconciler.', 'ages'],
    speechgate_reconciler_interval_seconds: ['Configured time between two runs, by reconciler.', 'intervals'],
  } as const;
  metrics.addGauges('shared', async () => ({ ages: await turnAges(), intervals }), gauges, 'reconciler');
}

export function addSigningKeyGauge(metrics: Metrics, { validUntil }: Pick<SigningKey, 'validUntil'>): void {
  if (!validUntil) return;
  metrics.addGauges('shared', async () => ({ secondsLeft: (validUntil.getTime() - Date.now()) / 1000 }), {
    speechgate_signing_key_seconds_left: [
      'Time until the metadata signing key expires; below 0 it has expired.',
      'secondsLeft',
    ],
  });
}

export function addAudioRoomGauges(metrics: Metrics, store: AudioStore): void {
  if (!store.room) return;
  metrics.addGauges('shared', store.room.bind(store), {
    speechgate_audio_free_bytes: ['Free space of the file system with the stored audio.', 'freeBytes'],
    speechgate_audio_size_bytes: ['Size of the file system with the stored audio.', 'sizeBytes'],
  });
}
