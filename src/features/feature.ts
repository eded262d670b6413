import type { Logger } from 'pino';
import type { Database } from '../db/database.ts';
import type { RunningWork } from '../lib/running-work.ts';
import type { WorkInProgress } from '../lib/work-in-progress.ts';
import type { RollingWindow } from '../limits/rolling-window.ts';
import type { Metrics } from '../observability/metrics.ts';
import type { KnownPauses } from '../operators/known-pauses.ts';
import type { Reconciler } from '../reconcile/reconciler.ts';
import type { Config } from '../settings/config.ts';

/** What all features of a process share. */
export interface SharedParts {
  readonly config: Config;
  readonly db: Database;
  /** The persistent rate limit. */
  readonly limits: RollingWindow;
  /** What operators have paused. */
  readonly pauses: KnownPauses;
  /** Work that a stop waits for. */
  readonly work: RunningWork;
  /** Requests that are worked on. */
  readonly inProgress: WorkInProgress;
  readonly metrics: Metrics;
  readonly log: Logger;
}

/** A part of the service that has opened itself: by its settings, or as far as it is off. */
export interface Feature {
  readonly reconcilers: readonly Reconciler[];
  /** The process stops: what only waits ends at once. */
  stop?(): void;
  /** Ends its own work beside the server. */
  end?(): Promise<void>;
  /** Gives its connections up, once nothing runs any more. */
  close?(): Promise<void>;
}
