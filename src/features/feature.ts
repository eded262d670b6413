import type { FastifyPluginAsync } from 'fastify';
import type { Logger } from 'pino';
import type { Config } from '../config/config.ts';
import type { Database } from '../db/database.ts';
import type { KnownPauses } from '../ledger/pauses.ts';
import type { RunningWork } from '../lib/running-work.ts';
import type { Metrics } from '../observability/metrics.ts';
import type { RollingWindow } from '../payments/limits/rolling-window.ts';
import type { Reconciler } from '../reconcile/reconciler.ts';

export interface SharedParts {
  readonly config: Config;
  readonly db: Database;
  readonly limits: RollingWindow;
  readonly pauses: KnownPauses;
  readonly work: RunningWork;
  readonly metrics: Metrics;
  readonly log: Logger;
}

export interface Feature {
  /** Its routes. */
  readonly plugin?: FastifyPluginAsync;
  readonly reconcilers: readonly Reconciler[];
  /** At the start of the service. @returns what no retry can heal, for people */
  start?(): Promise<string | undefined>;
  /** Shutdown begins: cancel what only waits. */
  stop?(): void;
  /** Finish own work while the server drains. */
  end?(): Promise<void>;
  /** Close connections, once nothing runs any more. */
  close?(): Promise<void>;
}
