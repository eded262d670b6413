import type { FastifyInstance } from 'fastify';
import type { Logger } from 'pino';
import type { Config } from './config/config.ts';
import { describeAddress } from './config/edge-settings.ts';
import type { Role } from './config/role.ts';
import { DEFAULT_SPEECH_TIMEOUT_MS } from './config/speech-settings.ts';
import { catalogRoutes, serviceRoutes } from './contract/routes.ts';
import { databaseOn, openPool } from './db/database.ts';
import type { QueueWorker } from './db/queue-worker.ts';
import { nameStatementTwice, type Readiness, readReadiness } from './db/readiness.ts';
import { openCard } from './features/card-feature.ts';
import type { Feature } from './features/feature.ts';
import { openFeedback } from './features/feedback-feature.ts';
import { openHolds } from './features/holds-feature.ts';
import { openJobs } from './features/jobs-feature.ts';
import { startPruning } from './features/pruning.ts';
import { openSpeech } from './features/speech-feature.ts';
import { openX402 } from './features/x402-feature.ts';
import { createAdminServer } from './http/admin/admin-server.ts';
import {
  addBookGauges,
  addBuildInfo,
  addPoolGauges,
  addReconcilerGauges,
  addStateGauges,
} from './http/admin/gauges.ts';
import { listen } from './http/listen.ts';
import { operations } from './http/operations.ts';
import { catalogOperations } from './http/routes/catalog-operations.ts';
import { servedContract } from './http/routes/served-contract.ts';
import { serviceOperations } from './http/routes/service-operations.ts';
import { createServer } from './http/server.ts';
import type { JobWorker } from './jobs/run-job.ts';
import { DatabaseIdentity, describeMismatch } from './ledger/database-identity.ts';
import { KnownPauses } from './ledger/pauses.ts';
import { RunningWork } from './lib/running-work.ts';
import { within } from './lib/within.ts';
import { serviceVersion } from './observability/logger.ts';
import { Metrics } from './observability/metrics.ts';
import { RollingWindow } from './payments/limits/rolling-window.ts';
import { ReconcilerRunner } from './reconcile/runner.ts';
import { VoiceSamples } from './speech/voice-samples.ts';

const DATABASE_TIMEOUT_MS = 5_000;

type Started =
  | { readonly outcome: 'started'; readonly work: string }
  | { readonly outcome: 'refused'; readonly reason: string };

export interface App {
  readonly server: FastifyInstance;
  readonly admin: FastifyInstance;
  readonly worker: JobWorker | undefined;
  readonly reconcilers: ReconcilerRunner;
  readonly metrics: Metrics;
  readonly databaseIdentity: DatabaseIdentity;
  readonly pauses: KnownPauses;
  readonly mailer: QueueWorker | undefined;
  start(role: Role): Promise<Started>;
  leave(): void;
  close(): Promise<void>;
}

interface AppOptions {
  /** The sandbox's account, which holds no real money. */
  readonly demoAccount?: () => string | undefined;
}

/** Composes the gateway from its features. The server listens only after `start`; timers of reconcilers start here. */
export async function createApp(config: Config, log: Logger, { demoAccount }: AppOptions = {}): Promise<App> {
  const { reconcileIntervalMs: intervalMs } = config;
  const pool = openPool(config.databaseUrl, { namedStatements: config.namedStatements, byKey: true });
  const db = databaseOn(pool);
  const metrics = new Metrics();
  // Registered first: collecting the other gauges uses the pool and would change its numbers.
  addPoolGauges(metrics, pool);
  const work = new RunningWork();
  const leaving = new AbortController();
  addBuildInfo(metrics, serviceVersion());
  addStateGauges(metrics, db, () => !leaving.signal.aborted);
  const limits = new RollingWindow(db, { ...config.rateLimit, livemode: config.card?.livemode }, metrics);
  const pauses = new KnownPauses(db, log);
  const shared = { config, db, limits, pauses, work, metrics, log };
  const databaseIdentity = new DatabaseIdentity(db, config);

  const holds = openHolds(shared);
  const speech = openSpeech(shared);
  const jobs = openJobs(shared, speech.speaking);
  const x402 = openX402(shared, { databaseIdentity, holds, speech, store: jobs.store });
  const card = openCard(shared, { holds, jobs, speech }, x402.headers, (names) => reconcilers.hurry(names));
  const feedback = openFeedback(shared);
  const samples = new VoiceSamples(jobs.store, log);
  const features: Feature[] = [holds, speech, x402, card, feedback, jobs];

  const speechTimeoutMs = config.speech?.timeoutMs ?? DEFAULT_SPEECH_TIMEOUT_MS;
  const contract = await servedContract(config);
  const server = await createServer({
    ...config,
    logger: log,
    longestSynthesisMs: speechTimeoutMs,
    leaving: leaving.signal,
    windows: { requests: limits, purchases: card.purchaseLimits },
    work,
    metrics,
  });
  await server.register(operations, {
    routes: serviceRoutes(
      serviceOperations({
        ...config,
        speechTimeoutMs,
        contract,
        demoAccount,
        samples,
      }),
    ),
  });
  await server.register(operations, { routes: catalogRoutes(catalogOperations(config, samples)) });
  for (const { plugin } of features) if (plugin) await server.register(plugin);
  const admin = createAdminServer({
    db,
    metrics,
    names: config.admin.names,
    leaving: leaving.signal,
    chain: x402.nodeState,
  });
  const reconcilers = new ReconcilerRunner({
    db,
    intervalMs,
    log,
    reconcilers: features.flatMap((feature) => feature.reconcilers),
    onResult: (name, count) => metrics.repaired(name, count),
  });
  addBookGauges(metrics, db);
  addReconcilerGauges(metrics, reconcilers.intervals, () => reconcilers.turnAges());
  reconcilers.start();
  pauses.start();
  const stopPruning = startPruning(shared, databaseIdentity);

  const { worker } = jobs;
  const { mailer } = feedback;
  const start = async (role: Role): Promise<Started> => {
    const database = await readReadiness(db, DATABASE_TIMEOUT_MS, nameStatementTwice);
    const reasons = [judgeDatabase(database, log)];
    for (const feature of features) reasons.push(await feature.start?.());
    const reason = reasons.filter((each) => each !== undefined).join('\n');
    if (reason) return { outcome: 'refused', reason };
    if (database.outcome === 'ready')
      await within(DATABASE_TIMEOUT_MS, Promise.all([databaseIdentity.check(), pauses.read()]));
    if (databaseIdentity.mismatch) return { outcome: 'refused', reason: describeMismatch(databaseIdentity.mismatch) };
    if (role !== 'web') {
      worker?.start();
      mailer?.start();
    }
    if (role === 'worker') return { outcome: 'started', work: `runs jobs, ${config.jobs.concurrency} at a time` };
    const { baseUrl, host, port } = config;
    const unusable = await listen({ server, host, port, settings: { host: 'HOST', port: 'PORT' } });
    if (unusable) return { outcome: 'refused', reason: unusable };
    return { outcome: 'started', work: `listens on ${baseUrl} (${describeAddress(config)})` };
  };
  const leave = () => leaving.abort();
  const close = async () => {
    leave();
    stopPruning();
    for (const feature of features) feature.stop?.();
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
  return { server, admin, worker, mailer, reconcilers, metrics, databaseIdentity, pauses, start, leave, close };
}

/** Logs what an operator must do about the database. @returns what no retry can heal */
function judgeDatabase(found: Readiness, log: Logger): string | undefined {
  if (found.outcome === 'refused') return `DATABASE_URL can't be used (${found.cause}). ${found.fix}`;
  if (found.outcome === 'unavailable')
    log.error(`the database in DATABASE_URL is unavailable (${found.cause}). ${found.fix}`);
  if (found.outcome === 'denied')
    log.error(`the role in DATABASE_URL lacks rights (${found.cause}), so the service is not ready. ${found.fix}`);
  if (found.outcome === 'unmigrated')
    log.error(
      { pending: found.pending },
      'the tables in the database are missing or out of date, so the service is not ready. Run speechgate migrate',
    );
  return undefined;
}
