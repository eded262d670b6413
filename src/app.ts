import type { FastifyInstance } from 'fastify';
import type { Logger } from 'pino';
import { addHoldGauges, addPoolGauges } from './admin/gauges.ts';
import { createAdminServer } from './admin/server.ts';
import { createLinkSigner } from './audio/link-token.ts';
import { openAudioStore } from './audio/open-store.ts';
import type { Config } from './config.ts';
import { databaseOn, openPool } from './db/database.ts';
import { createChallengeSigner } from './feedback/challenge-token.ts';
import { MailWorker } from './feedback/mail-worker.ts';
import { createServer } from './http/server.ts';
import { JobWorker } from './jobs/worker.ts';
import { RollingWindow } from './limits/rolling-window.ts';
import { Metrics } from './metrics.ts';
import { catalogOperations } from './operations/catalog.ts';
import { creditsOperations } from './operations/credits.ts';
import { feedbackOperations } from './operations/feedback.ts';
import { jobsOperations } from './operations/jobs.ts';
import { serviceOperations } from './operations/service.ts';
import { speechOperations } from './operations/speech.ts';
import { topUpOperations } from './operations/top-up.ts';
import { CardCredits } from './payments/card-credits.ts';
import { createReconcilers } from './reconcile/reconcilers.ts';
import { ReconcilerRunner } from './reconcile/runner.ts';
import { RunningWork } from './running-work.ts';
import { measuredProvider } from './speech/measured-provider.ts';
import { openProvider } from './speech/open-provider.ts';
import { Processor } from './top-up/processor.ts';
import { Purchases } from './top-up/purchase.ts';

export interface App {
  readonly server: FastifyInstance;
  readonly admin: FastifyInstance;
  /** Runs jobs once it is started; undefined without a speech provider. */
  readonly worker: JobWorker | undefined;
  readonly reconcilers: ReconcilerRunner;
  /** Mails feedback once it is started; undefined where mail is not set up. */
  readonly mailer: MailWorker | undefined;
  /** Stops accepting, finishes what runs, and gives everything up. */
  close(): Promise<void>;
}

/** Composes the gateway. Nothing listens yet, nothing is connected before it is needed, reconcilers wait their interval. */
export async function createApp(config: Config, log: Logger): Promise<App> {
  const { baseUrl, serviceName, catalog, databaseUrl } = config;
  const pool = openPool(databaseUrl);
  const db = databaseOn(pool);
  const work = new RunningWork();
  const metrics = new Metrics();
  const limits = new RollingWindow(db, config.rateLimit, metrics);

  const speech = config.speech && {
    provider: measuredProvider(await openProvider(config.speech), metrics),
    timeoutMs: config.speech.timeoutMs,
  };
  const card = config.card && {
    credits: new CardCredits(db, config.speech?.timeoutMs ?? 0, log, metrics),
    purchases: new Purchases(db, new Processor(config.card.secretKey, config.card.apiBase), { baseUrl, serviceName }),
    checkoutOrigin: config.card.checkoutOrigin,
    maxCents: config.card.topUpMaxCents,
  };
  const store = openAudioStore(config.jobs.audioStore);
  const signer = config.jobs.signingSecrets.length > 0 ? createLinkSigner(config.jobs.signingSecrets) : undefined;
  const { concurrency, audioRetentionSeconds: retentionSeconds } = config.jobs;
  const worker = speech && new JobWorker({ ...speech, db, databaseUrl, store, retentionSeconds, concurrency, log });
  const mail = config.feedback?.mail;
  const feedback = config.feedback && {
    signer: createChallengeSigner(config.feedback.secrets),
    challengeTtlSeconds: config.feedback.challengeTtlSeconds,
    notification: mail ? ('queued' as const) : ('not_configured' as const),
  };
  const mailer =
    mail && new MailWorker({ ...mail, db, databaseUrl, serviceName, sweepIntervalMs: config.reconcileIntervalMs, log });
  if (!speech) log.warn('no speech provider: SPEECH_BASE_URL is unset, speech answers 503');
  if (!card) log.warn('card credits are off: STRIPE_SECRET_KEY is unset, their endpoints answer 503');
  if (!signer) log.warn('audio links are not signed: JOB_SIGNING_SECRET is unset');
  if (!feedback) log.warn('feedback is off: FEEDBACK_SECRET is unset, its endpoints answer 503');
  else if (!mailer) log.warn('feedback is stored, but not mailed: SMTP_URL is unset');

  const server = createServer(
    {
      service: serviceOperations({ serviceName, baseUrl }),
      catalog: catalogOperations(catalog),
      speech: speechOperations({
        ...{ db, baseUrl, signer, serviceName, catalog, speech },
        ...{ cardCredits: card?.credits, limits, work },
      }),
      jobs: jobsOperations({ db, store, limits, baseUrl, signer }),
      topUp: topUpOperations(db, { baseUrl, serviceName, card }),
      credits: creditsOperations(db),
      feedback: feedbackOperations({ db, serviceName, baseUrl, limits, feedback }),
    },
    { logger: log, trustProxy: config.trustProxy, edgeRateLimitMax: config.edgeRateLimitMax, work, metrics },
  );
  const admin = createAdminServer(db, metrics);
  addPoolGauges(metrics, pool);
  addHoldGauges(metrics, db);

  const reconcilers = new ReconcilerRunner({
    db,
    databaseUrl,
    reconcilers: createReconcilers(config, db, store),
    intervalMs: config.reconcileIntervalMs,
    log,
    onResult: (name, count) => metrics.repaired(name, count),
  });
  reconcilers.start();
  const pruning = setInterval(() => {
    work.add(limits.prune()).catch((err) => log.warn({ err }, 'rate windows could not be pruned'));
  }, config.reconcileIntervalMs).unref();

  return {
    server,
    admin,
    worker,
    mailer,
    reconcilers,
    close: async () => {
      clearInterval(pruning);
      await Promise.all([server.close(), worker?.stop(), mailer?.stop(), reconcilers.stop()]);
      await work.idle();
      await admin.close();
      await speech?.provider.close();
      await store.close();
      await db.destroy();
    },
  };
}
