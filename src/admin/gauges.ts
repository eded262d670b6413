import type { Pool } from 'pg';
import type { Database } from '../db/database.ts';
import { backlog } from '../jobs/job-backlog.ts';
import { pendingHolds } from '../ledger/pending-holds.ts';
import type { Metrics } from '../observability/metrics.ts';
import type { KnownPauses } from '../operators/known-pauses.ts';
import type { DirectWork } from '../payments/direct-work.ts';
import type { GivingBack } from '../payments/giving-back.ts';
import type { AudioMemory } from '../speech/audio-memory.ts';

/** Shows operators how busy this process's connections to the database are. */
export function addPoolGauges(metrics: Metrics, pool: Pool): void {
  metrics.addGauges(
    'process',
    {
      speechgate_database_connections: 'Connections of the pool.',
      speechgate_database_idle_connections: 'Those of them that nobody uses.',
      speechgate_database_waiting: 'Statements that wait for a connection.',
    },
    async () => ({
      speechgate_database_connections: pool.totalCount,
      speechgate_database_idle_connections: pool.idleCount,
      speechgate_database_waiting: pool.waitingCount,
    }),
  );
}

/** Shows operators how many flows they have paused, as far as this process knows. */
export function addPauseGauge(metrics: Metrics, pauses: KnownPauses): void {
  metrics.addGauges(
    'shared',
    { speechgate_paused_flows: 'Flows that operators have paused, as the process knows it.' },
    async () => ({ speechgate_paused_flows: pauses.count }),
  );
}

/** Shows operators the money that is being held now, which is the database's to tell. */
export function addHoldGauges(metrics: Metrics, db: Database): void {
  metrics.addGauges(
    'shared',
    {
      speechgate_pending_holds: 'Holds in the database that are neither captured nor voided.',
      speechgate_oldest_pending_hold_seconds: 'Age of the oldest of them.',
      speechgate_holds_past_lease: 'Those of them whose lease has passed, so that nobody keeps them any more.',
      speechgate_oldest_hold_past_lease_seconds: 'How long ago the lease passed that did first.',
    },
    async () => {
      const { count, oldestSeconds, pastLease, oldestPastLeaseSeconds } = await pendingHolds(db);
      return {
        speechgate_pending_holds: count,
        speechgate_oldest_pending_hold_seconds: oldestSeconds,
        speechgate_holds_past_lease: pastLease,
        speechgate_oldest_hold_past_lease_seconds: oldestPastLeaseSeconds,
      };
    },
  );
}

/** Shows operators the captures that may have been made without this process knowing it. */
export function addDoubtGauge(metrics: Metrics, givingBack: GivingBack): void {
  metrics.addGauges(
    'process',
    { speechgate_doubtful_captures: 'Captures of unknown end whose callers were told that they failed.' },
    async () => ({ speechgate_doubtful_captures: givingBack.count }),
  );
}

/** Shows operators the jobs that wait or run, in all processes together. */
export function addJobGauges(metrics: Metrics, db: Database): void {
  metrics.addGauges(
    'shared',
    {
      speechgate_queued_jobs: 'Jobs in the database that wait, those included that wait for their next attempt.',
      speechgate_processing_jobs: 'Jobs in the database that a worker has claimed.',
      speechgate_oldest_due_job_seconds: 'How long the job that has been due the longest waits already.',
      speechgate_oldest_processing_job_seconds: 'How long the attempt at a job that has run the longest runs already.',
    },
    async () => {
      const { queued, processing, oldestDueSeconds, oldestProcessingSeconds } = await backlog(db);
      return {
        speechgate_queued_jobs: queued,
        speechgate_processing_jobs: processing,
        speechgate_oldest_due_job_seconds: oldestDueSeconds,
        speechgate_oldest_processing_job_seconds: oldestProcessingSeconds,
      };
    },
  );
}

/** Shows operators how much work of the speech provider waits for its payment, or was lost to failed settlements lately (R21b). */
export function addUnsettledWorkGauge(metrics: Metrics, work: DirectWork): void {
  metrics.addGauges(
    'process',
    { speechgate_unsettled_work_seconds: 'Upstream seconds whose direct payment is not settled, of the last hour.' },
    async () => ({ speechgate_unsettled_work_seconds: work.unsettledSeconds }),
  );
}

/** Shows operators how much audio waits in this process for callers who have not taken it (R55). */
export function addWaitingAudioGauge(metrics: Metrics, memory: AudioMemory): void {
  metrics.addGauges(
    'process',
    { speechgate_waiting_audio_bytes: 'Audio in memory that callers have not taken yet.' },
    async () => ({ speechgate_waiting_audio_bytes: memory.bytes }),
  );
}
