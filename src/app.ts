import type { FastifyInstance } from 'fastify';
import type { Logger } from 'pino';
import { createAdminServer } from './admin/admin-server.ts';
import { addPauseGauge, addPoolGauges } from './admin/gauges.ts';
import { addBookGauges, addReconcilerGauges } from './admin/watch-gauges.ts';
import { routes } from './contract/routes.ts';
import { databaseOn, openPool } from './db/database.ts';
import { openCard } from './features/card-feature.ts';
import { openFeedback } from './features/feedback-feature.ts';
import { openHolds } from './features/holds-feature.ts';
import { openJobs } from './features/jobs-feature.ts';
import { startPruning } from './features/pruning.ts';
import { openSpeech } from './features/speech-feature.ts';
import { openX402 } from './features/x402-feature.ts';
import type { MailWorker } from './feedback/mail-worker.ts';
import { Overload } from './http/overload.ts';
import { createServer } from './http/server.ts';
import type { JobWorker } from './jobs/job-worker.ts';
import { Belonging } from './ledger/belonging.ts';
import { RunningWork } from './lib/running-work.ts';
import { WorkInProgress } from './lib/work-in-progress.ts';
import { RollingWindow } from './limits/rolling-window.ts';
import { Metrics } from './observability/metrics.ts';
import { catalogOperations } from './operations/catalog-operations.ts';
import { servedContract } from './operations/served-contract.ts';
import { serviceOperations } from './operations/service-operations.ts';
import { KnownPauses } from './operators/known-pauses.ts';
import { ReconcilerRunner } from './reconcile/runner.ts';
import type { Config } from './settings/config.ts';
import { DEFAULT_SPEECH_TIMEOUT_MS } from './settings/speech-settings.ts';

export interface App {
  readonly server: FastifyInstance;
  readonly admin: FastifyInstance;
  /** Runs jobs once it is started; undefined without a speech provider. */
  readonly worker: JobWorker | undefined;
  readonly reconcilers: ReconcilerRunner;
  readonly metrics: Metrics;
  /** Requests for speech that have come and are not answered yet. */
  readonly inProgress: WorkInProgress;
  /** Whether the database's money is that of the settings. */
  readonly belonging: Belonging;
  /** What operators have paused. */
  readonly pauses: KnownPauses;
  /** Mails feedback once it is started; undefined where mail is not set up. */
  readonly mailer: MailWorker | undefined;
  /** Tells proxies and clients to go elsewhere, and goes on serving: not ready, and each answer closes its connection. */
  leave(): void;
  /** Stops accepting, finishes what runs, and gives everything up. */
  close(): Promise<void>;
}

/** Composes the gateway. Nothing listens yet, nothing is connected before it is needed, reconcilers wait their interval. */
export async function createApp(config: Config, log: Logger): Promise<App> {
  const { reconcileIntervalMs: intervalMs } = config;
  const pool = openPool(config.databaseUrl, { namedStatements: config.namedStatements });
  const db = databaseOn(pool);
  const metrics = new Metrics();
  // Read first, before other gauges use the pool.
  addPoolGauges(metrics, pool);
  const work = new RunningWork();
  const inProgress = new WorkInProgress();
  const leaving = new AbortController();
  const limits = new RollingWindow(db, { ...config.rateLimit, livemode: config.card?.livemode }, metrics);
  const pauses = new KnownPauses(db, log);
  addPauseGauge(metrics, pauses);
  const shared = { config, db, limits, pauses, work, inProgress, metrics, log };
  const belonging = new Belonging(db, config);

  const holds = openHolds(shared);
  const speech = await openSpeech(shared);
  const jobs = openJobs(shared, speech.speaking);
  const x402 = openX402(shared, { belonging, holds, speech, store: jobs.store });
  const card = openCard(shared, { holds, jobs, speech }, x402.headers);
  const feedback = openFeedback(shared);
  const features = [holds, speech, x402, card, feedback, jobs];

  const overload = new Overload({ ...config, routes, inProgress, metrics, logger: log });
  const server = await createServer(
    (contract) => ({
      service: serviceOperations({
        ...config,
        speechTimeoutMs: config.speech?.timeoutMs ?? DEFAULT_SPEECH_TIMEOUT_MS,
        contract: servedContract(contract, config),
      }),
      catalog: catalogOperations(config.catalog),
      ...{ ...card.operations, ...jobs.operations, ...x402.operations, ...feedback.operations },
    }),
    {
      ...config,
      logger: log,
      longestOperationMs: config.speech?.timeoutMs ?? 0,
      leaving: leaving.signal,
      windows: { requests: limits, purchases: card.purchaseLimits },
      ...{ proofs: x402.proofs, standIns: x402.standIns, work, overload, metrics },
    },
  );
  const admin = createAdminServer({ db, metrics, names: config.admin.names, leaving: leaving.signal });
  const reconcilers = new ReconcilerRunner({
    ...{ db, intervalMs, log },
    reconcilers: features.flatMap((feature) => feature.reconcilers),
    onResult: (name, count) => metrics.repaired(name, count),
  });
  addBookGauges(metrics, db);
  addReconcilerGauges(metrics, reconcilers.intervals, () => reconcilers.turnAges());
  reconcilers.start();
  pauses.start();
  const stopPruning = startPruning(shared, belonging);

  const { worker } = jobs;
  const { mailer } = feedback;
  const leave = () => leaving.abort();
  const close = async () => {
    leave();
    stopPruning();
    for (const feature of features) feature.stop?.();
    overload.beginAll();
    await Promise.all([
      server.close(),
      reconcilers.stop(),
      pauses.stop(),
      ...features.map((feature) => feature.end?.()),
    ]);
    await work.idle();
    for (const feature of features) await feature.close?.();
    await admin.close();
    await db.destroy();
  };
  return { server, admin, worker, mailer, reconcilers, metrics, inProgress, belonging, pauses, leave, close };
}
