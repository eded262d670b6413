import type { FastifyInstance } from 'fastify';
import type { Logger } from 'pino';
import { createAdminServer } from './admin/server.ts';
import { createLinkSigner } from './audio/link-token.ts';
import { openAudioStore } from './audio/open-store.ts';
import type { Config } from './config.ts';
import { openDatabase } from './db/database.ts';
import { createServer } from './http/server.ts';
import { JobWorker } from './jobs/worker.ts';
import { catalogOperations } from './operations/catalog.ts';
import { creditsOperations } from './operations/credits.ts';
import { jobsOperations } from './operations/jobs.ts';
import { serviceOperations } from './operations/service.ts';
import { speechOperations } from './operations/speech.ts';
import { topUpOperations } from './operations/top-up.ts';
import { CardCredits } from './payments/card-credits.ts';
import { RunningWork } from './running-work.ts';
import { openProvider } from './speech/open-provider.ts';
import { Processor } from './top-up/processor.ts';
import { Purchases } from './top-up/purchase.ts';

export interface App {
  readonly server: FastifyInstance;
  readonly admin: FastifyInstance;
  /** Runs jobs once it is started; undefined without a speech provider. */
  readonly worker: JobWorker | undefined;
  /** Stops accepting, finishes what runs, and gives everything up. */
  close(): Promise<void>;
}

/** Composes the gateway. Nothing listens yet, and nothing is connected before it is needed. */
export async function createApp(config: Config, log: Logger): Promise<App> {
  const { baseUrl, serviceName, catalog, databaseUrl } = config;
  const db = openDatabase(databaseUrl);
  const work = new RunningWork();

  const speech = config.speech && {
    provider: await openProvider(config.speech),
    timeoutMs: config.speech.timeoutMs,
  };
  const card = config.card && {
    credits: new CardCredits(db, config.speech?.timeoutMs ?? 0, log),
    purchases: new Purchases(db, new Processor(config.card.secretKey, config.card.apiBase), { baseUrl, serviceName }),
    checkoutOrigin: config.card.checkoutOrigin,
    maxCents: config.card.topUpMaxCents,
  };
  const store = openAudioStore(config.jobs.audioStore);
  const signer = config.jobs.signingSecrets.length > 0 ? createLinkSigner(config.jobs.signingSecrets) : undefined;
  const { concurrency, audioRetentionSeconds: retentionSeconds } = config.jobs;
  const worker = speech && new JobWorker({ ...speech, db, databaseUrl, store, retentionSeconds, concurrency, log });
  if (!speech) log.warn('no speech provider: SPEECH_BASE_URL is unset, speech answers 503');
  if (!card) log.warn('card credits are off: STRIPE_SECRET_KEY is unset, their endpoints answer 503');
  if (!signer) log.warn('audio links are not signed: JOB_SIGNING_SECRET is unset');

  const server = createServer(
    {
      service: serviceOperations({ serviceName, baseUrl }),
      catalog: catalogOperations(catalog),
      speech: speechOperations({
        ...{ db, baseUrl, signer, serviceName, catalog, speech },
        ...{ cardCredits: card?.credits, work },
      }),
      jobs: jobsOperations({ db, store, baseUrl, signer }),
      topUp: topUpOperations(db, { baseUrl, serviceName, card }),
      credits: creditsOperations(db),
    },
    { logger: log, trustProxy: config.trustProxy, work },
  );
  const admin = createAdminServer(db);

  return {
    server,
    admin,
    worker,
    close: async () => {
      await Promise.all([server.close(), worker?.stop()]);
      await work.idle();
      await admin.close();
      await speech?.provider.close();
      await store.close();
      await db.destroy();
    },
  };
}
