import type { FastifyInstance } from 'fastify';
import type { Logger } from 'pino';
import { createAdminServer } from './admin/server.ts';
import { openAudioStore } from './audio/open-store.ts';
import type { AudioStore } from './audio/store.ts';
import type { Config, X402Config } from './config.ts';
import { type Database, openDatabase } from './db/database.ts';
import { createServer } from './http/server.ts';
import { catalogOperations } from './operations/catalog.ts';
import { creditsOperations } from './operations/credits.ts';
import { serviceOperations } from './operations/service.ts';
import { speechOperations } from './operations/speech.ts';
import { topUpOperations } from './operations/top-up.ts';
import { x402Operations } from './operations/x402.ts';
import { CardCredits } from './payments/card-credits.ts';
import { DirectPayment } from './payments/direct.ts';
import { RunningWork } from './running-work.ts';
import { openProvider } from './speech/open-provider.ts';
import { Processor } from './top-up/processor.ts';
import { Purchases } from './top-up/purchase.ts';
import { Chain } from './x402/chain.ts';
import { Facilitator } from './x402/facilitator.ts';
import { ServiceMetadata } from './x402/metadata.ts';
import { Payments } from './x402/payment.ts';
import { Quotes } from './x402/quotes.ts';
import { reconcilePayments } from './x402/reconcile.ts';
import { Settlement } from './x402/settlement.ts';
import { UnsettledWork } from './x402/unsettled-work.ts';

export interface App {
  readonly server: FastifyInstance;
  readonly admin: FastifyInstance;
  /** Stops accepting, finishes what runs, and gives everything up. */
  close(): Promise<void>;
}

/** Composes the gateway. Nothing listens yet, and nothing is connected before it is needed. */
export async function createApp(config: Config, log: Logger): Promise<App> {
  const { baseUrl, serviceName, catalog } = config;
  const db = openDatabase(config.databaseUrl);
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
  const store = openAudioStore(config.audioStore);
  const { x402 } = config;
  const chained = x402?.rpcUrl === undefined ? undefined : openDirect(db, x402, x402.rpcUrl, store, log);
  if (!x402) log.warn('payment under x402 is off: X402_PAY_TO is unset, its endpoints answer 503');
  else if (!chained) log.warn('direct payment under x402 is off: X402_RPC_URL is unset, it answers 503');
  if (!config.quotes) log.warn('quotes are off: QUOTE_SECRET is unset, they answer 503');
  if (x402 && !config.signingKeys) log.warn('signed metadata is off: SIGNING_KEYS_FILE is unset, it answers 503');
  if (!speech) log.warn('no speech provider: SPEECH_BASE_URL is unset, speech answers 503');
  if (!card) log.warn('card credits are off: STRIPE_SECRET_KEY is unset, their endpoints answer 503');

  const server = createServer(
    {
      service: serviceOperations({ serviceName, baseUrl }),
      catalog: catalogOperations(catalog),
      speech: speechOperations({ baseUrl, serviceName, catalog, speech, cardCredits: card?.credits, work }),
      topUp: topUpOperations(db, { baseUrl, serviceName, card }),
      credits: creditsOperations(db),
      x402: x402Operations({
        baseUrl,
        serviceName,
        catalog,
        speech,
        terms: x402,
        direct: chained?.direct,
        quotes: config.quotes && new Quotes(config.quotes.secrets, config.quotes.ttlSeconds),
        metadata:
          x402 && config.signingKeys
            ? new ServiceMetadata(db, { baseUrl, serviceName, catalog, ...x402, keys: config.signingKeys })
            : undefined,
      }),
    },
    { logger: log, trustProxy: config.trustProxy, work },
  );
  const admin = createAdminServer(db);
  const reconciling = chained && reconcileEvery(config.reconcileIntervalMs, chained.reconcile, log);

  return {
    server,
    admin,
    close: async () => {
      await server.close();
      await reconciling?.stop();
      await work.idle();
      await admin.close();
      await speech?.provider.close();
      await chained?.close();
      await store.close();
      await db.destroy();
    },
  };
}

/** The parts of direct payment that need the chain. */
function openDirect(db: Database, x402: X402Config, rpcUrl: string, store: AudioStore, log: Logger) {
  const { asset } = x402;
  const chain = new Chain(rpcUrl, asset);
  const facilitator = new Facilitator(x402.facilitatorUrl, x402.facilitatorToken);
  const payments = new Payments(db, asset);
  const settlement = new Settlement({ db, payments, facilitator, chain, asset, log });
  const unsettledWork = new UnsettledWork();
  return {
    direct: new DirectPayment({ payments, settlement, facilitator, chain, store, unsettledWork, log }),
    reconcile: (signal: AbortSignal) => reconcilePayments({ payments, settlement, store }, signal),
    close: async () => {
      await facilitator.close();
      await chain.close();
    },
  };
}

/** Runs a reconciler every interval; a failed turn is made up for by the next one. */
function reconcileEvery(intervalMs: number, turn: (signal: AbortSignal) => Promise<unknown>, log: Logger) {
  const stopping = new AbortController();
  let running: Promise<unknown> = Promise.resolve();
  let isRunning = false;
  const timer = setInterval(() => {
    if (isRunning) return;
    isRunning = true;
    running = turn(stopping.signal)
      .catch((err) => log.warn({ err }, 'payments could not be reconciled; the next turn goes on'))
      .finally(() => {
        isRunning = false;
      });
  }, intervalMs).unref();
  return {
    stop: async () => {
      clearInterval(timer);
      stopping.abort();
      await running;
    },
  };
}
