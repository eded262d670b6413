import type { FastifyInstance } from 'fastify';
import type { Logger } from 'pino';
import {
  addDoubtGauge,
  addHoldGauges,
  addJobGauges,
  addPoolGauges,
  addUnsettledWorkGauge,
  addWaitingAudioGauge,
} from './admin/gauges.ts';
import { createAdminServer } from './admin/server.ts';
import { createLinkSigner } from './audio/link-token.ts';
import { openAudioStore } from './audio/open-store.ts';
import type { AudioStore } from './audio/store.ts';
import { Belonging } from './belonging.ts';
import type { Config } from './config.ts';
import { type Database, databaseOn, openPool } from './db/database.ts';
import { createChallengeSigner } from './feedback/challenge-token.ts';
import { MailWorker } from './feedback/mail-worker.ts';
import { createServer } from './http/server.ts';
import { JobWorker } from './jobs/worker.ts';
import { pruneNonces } from './ledger/wallets.ts';
import { RollingWindow } from './limits/rolling-window.ts';
import { UnpaidWork } from './limits/unpaid-work.ts';
import { Metrics } from './metrics.ts';
import { catalogOperations } from './operations/catalog.ts';
import { creditsOperations } from './operations/credits.ts';
import { feedbackOperations } from './operations/feedback.ts';
import { jobsOperations } from './operations/jobs.ts';
import { probeStandIns } from './operations/probes.ts';
import { serviceOperations } from './operations/service.ts';
import { speechOperations } from './operations/speech.ts';
import { TOP_UP_WINDOW_SECONDS, topUpOperations } from './operations/top-up.ts';
import { x402Operations } from './operations/x402.ts';
import { CARD_HEADERS, CardCredits } from './payments/card-credits.ts';
import { Deposits } from './payments/deposit.ts';
import { DIRECT_HEADERS, DirectPayment } from './payments/direct-payment.ts';
import { DirectWork, type DirectWorkLimits } from './payments/direct-work.ts';
import { GivingBack } from './payments/giving-back.ts';
import { PaymentIntake } from './payments/intake.ts';
import { PrepaidBalance } from './payments/prepaid-balance.ts';
import { StreamDeadlines } from './payments/stream-deadlines.ts';
import { UnfinishedHolds } from './payments/unfinished-holds.ts';
import { createReconcilers } from './reconcile/reconcilers.ts';
import { ReconcilerRunner } from './reconcile/runner.ts';
import { RunningWork } from './running-work.ts';
import type { CardConfig } from './settings/card.ts';
import type { SpeechConfig } from './settings/speech.ts';
import type { X402Config } from './settings/x402.ts';
import { Admission } from './speech/admission.ts';
import { AudioMemory } from './speech/audio-memory.ts';
import { measuredProvider } from './speech/measured-provider.ts';
import { openProvider } from './speech/open-provider.ts';
import type { SpeechProvider } from './speech/provider.ts';
import { Processor } from './top-up/processor.ts';
import { Purchases } from './top-up/purchase.ts';
import type { NodeUrls } from './x402/chain.ts';
import { Facilitator } from './x402/facilitator.ts';
import { watchKeyExpiry } from './x402/key-expiry.ts';
import { ServiceMetadata } from './x402/metadata.ts';
import { openPayments } from './x402/open-payments.ts';
import { PREPAID } from './x402/prepaid.ts';
import { PrepaidVerifier } from './x402/prepaid-credential.ts';
import { Quotes } from './x402/quotes.ts';
import { Settlement } from './x402/settlement.ts';

export interface App {
  readonly server: FastifyInstance;
  readonly admin: FastifyInstance;
  /** Runs jobs once it is started; undefined without a speech provider. */
  readonly worker: JobWorker | undefined;
  readonly reconcilers: ReconcilerRunner;
  /** Whether the database's money is that of the settings. */
  readonly belonging: Belonging;
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
  const belonging = new Belonging(db, config);
  const livemode = config.card?.livemode;
  const limits = new RollingWindow(db, { ...config.rateLimit, livemode }, metrics);
  const unfinished = new UnfinishedHolds(db, log);
  const givingBack = new GivingBack(db, log);
  const keeping = { unfinished, givingBack, capturePatienceMs: config.capturePatienceMs };
  const holdParts = () => ({
    ...{ db, log, metrics, keeping },
    leaseSeconds: config.speech?.streaming.leaseSeconds ?? 0,
    work: new UnpaidWork(config.unpaidWork),
  });
  const longestWindowSeconds = Math.max(config.rateLimit.windowSeconds, TOP_UP_WINDOW_SECONDS);

  const speech = config.speech && openSpeech(config.speech, await openProvider(config.speech), metrics);
  const card = config.card && {
    credits: new CardCredits(config.card.livemode, holdParts()),
    purchases: new Purchases(db, openProcessor(config.card), { baseUrl, serviceName }),
    checkoutOrigin: config.card.checkoutOrigin,
    maxCents: config.card.topUpMaxCents,
    limits: new RollingWindow(
      db,
      { max: config.card.topUpRateLimitMax, windowSeconds: TOP_UP_WINDOW_SECONDS },
      metrics,
    ),
  };
  const store = openAudioStore(config.jobs.audioStore);
  const signer = config.jobs.signingSecrets.length > 0 ? createLinkSigner(config.jobs.signingSecrets) : undefined;
  const { concurrency, audioRetentionSeconds: retentionSeconds } = config.jobs;
  const worker =
    speech && new JobWorker({ ...speech, db, databaseUrl, store, retentionSeconds, concurrency, metrics, log });
  const mail = config.feedback?.mail;
  const feedback = config.feedback && {
    signer: createChallengeSigner(config.feedback.secrets),
    challengeTtlSeconds: config.feedback.challengeTtlSeconds,
    maxPerHour: config.feedback.maxPerHour,
    notification: mail ? ('queued' as const) : ('not_configured' as const),
  };
  const mailer = mail && new MailWorker({ ...mail, db, databaseUrl, serviceName, log });
  const { x402 } = config;
  const chained =
    x402?.rpcUrls === undefined
      ? undefined
      : openDirect(db, x402, x402.rpcUrls, { store, limits: config.unpaidWork, metrics, log });
  const prepaid = x402 && new PrepaidBalance(new PrepaidVerifier(serviceName, x402.asset, x402.payees), holdParts());
  const x402Flows = [
    { headers: DIRECT_HEADERS, flow: chained?.direct },
    { headers: PREPAID.headers, flow: prepaid },
  ];
  const x402Headers = x402Flows.flatMap(({ headers }): readonly string[] => headers);
  const flowHeaders = [...CARD_HEADERS, ...x402Headers];
  if (!x402) log.warn('payment under x402 is off: X402_PAY_TO is unset, its endpoints answer 503');
  else if (!chained) log.warn('direct payment under x402 is off: X402_RPC_URL is unset, it answers 503');
  if (!config.quotes) log.warn('quotes are off: QUOTE_SECRET is unset, they answer 503');
  if (x402 && !config.signingKeys) log.warn('signed metadata is off: SIGNING_KEYS_FILE is unset, it answers 503');
  if (!speech) log.warn('no speech provider: SPEECH_BASE_URL is unset, speech answers 503');
  if (!card) log.warn('card credits are off: STRIPE_SECRET_KEY is unset, their endpoints answer 503');
  if (!signer) log.warn('audio links are not signed: JOB_SIGNING_SECRET is unset');
  if (!feedback) log.warn('feedback is off: FEEDBACK_SECRET is unset, its endpoints answer 503');
  else if (!mailer) log.warn('feedback is stored, but not mailed: SMTP_URL is unset');

  const currentKey = x402 && config.signingKeys?.find(({ status }) => status === 'current');
  const stopWatchingKey = currentKey && watchKeyExpiry(currentKey, log);

  const usdc = x402Operations({
    baseUrl,
    serviceName,
    catalog,
    speech,
    terms: x402,
    belonging,
    flows: x402Flows,
    foreignHeaders: CARD_HEADERS,
    deposits: chained?.deposits,
    prepaid,
    quotes: config.quotes && new Quotes(config.quotes.secrets, config.quotes.ttlSeconds),
    metadata:
      x402 && config.signingKeys
        ? new ServiceMetadata(db, { baseUrl, serviceName, catalog, ...x402, keys: config.signingKeys })
        : undefined,
  });
  const server = await createServer(
    (contract) => ({
      service: serviceOperations({ serviceName, baseUrl, contract }),
      catalog: catalogOperations(catalog),
      speech: speechOperations({
        ...{ db, baseUrl, signer, serviceName, catalog, metrics, work },
        streaming: speech?.streaming,
        cardCredits: card?.credits,
        foreignHeaders: x402Headers,
      }),
      jobs: jobsOperations({ db, store, baseUrl, signer }),
      topUp: topUpOperations(db, { baseUrl, serviceName, card, livemode }),
      credits: creditsOperations(db, livemode),
      feedback: feedbackOperations({ db, serviceName, baseUrl, feedback }),
      x402: usdc.operations,
    }),
    {
      logger: log,
      baseUrl,
      trustProxy: config.trustProxy,
      edgeRateLimitMax: config.edgeRateLimitMax,
      maxConnections: config.maxConnections,
      clientStallMs: config.clientStallMs,
      longestOperationMs: config.speech?.timeoutMs ?? 0,
      windows: { requests: limits, purchases: card?.limits },
      proofs: usdc.proofs,
      flowHeaders,
      standIns: x402?.probeAnswer === 402 ? probeStandIns(flowHeaders) : {},
      work,
      metrics,
    },
  );
  const admin = createAdminServer(db, metrics, config.admin.names);
  addPoolGauges(metrics, pool);
  addHoldGauges(metrics, db);
  addJobGauges(metrics, db);
  addDoubtGauge(metrics, givingBack);
  if (speech) addWaitingAudioGauge(metrics, speech.streaming.memory);
  if (chained) addUnsettledWorkGauge(metrics, chained.work);

  const reconcilers = new ReconcilerRunner({
    db,
    reconcilers: createReconcilers(config, db, store, chained),
    intervalMs: config.reconcileIntervalMs,
    log,
    onResult: (name, count) => metrics.repaired(name, count),
  });
  reconcilers.start();
  const pruning = setInterval(() => {
    work.add(limits.prune(longestWindowSeconds)).catch((err) => log.warn({ err }, 'rate windows could not be pruned'));
    work.add(pruneNonces(db)).catch((err) => log.warn({ err }, 'spent nonces could not be pruned'));
    // Until the database was there for the first time; whoever needs it meanwhile tells that it is not.
    work.add(belonging.check()).catch(() => {});
  }, config.reconcileIntervalMs).unref();

  return {
    server,
    admin,
    worker,
    mailer,
    reconcilers,
    belonging,
    close: async () => {
      clearInterval(pruning);
      stopWatchingKey?.();
      chained?.deposits.stop();
      speech?.streaming.deadlines.stop();
      await Promise.all([server.close(), worker?.stop(), mailer?.stop(), reconcilers.stop()]);
      await work.idle();
      await givingBack.stop();
      await unfinished.stop();
      await admin.close();
      await speech?.provider.close();
      await chained?.close();
      await store.close();
      await db.destroy();
    },
  };
}

const openProcessor = ({ secretKey, apiBase, checkoutOrigin }: CardConfig): Processor =>
  new Processor(secretKey, apiBase, { checkoutOrigin });

/** The provider, and what decides how much is asked of it. */
function openSpeech({ timeoutMs, streaming }: SpeechConfig, unmeasured: SpeechProvider, metrics: Metrics) {
  const provider = measuredProvider(unmeasured, metrics);
  const memory = new AudioMemory(streaming.waitingBytes);
  const admission = new Admission(provider, memory);
  const deadlines = new StreamDeadlines({ silenceMs: timeoutMs, totalMs: streaming.totalMs });
  return { provider, timeoutMs, admission, streaming: { admission, deadlines, memory } };
}

/** The parts of direct payment, which needs the chain (R58). */
function openDirect(
  db: Database,
  x402: X402Config,
  rpcUrls: NodeUrls,
  parts: { store: AudioStore; limits: DirectWorkLimits; metrics: Metrics; log: Logger },
) {
  const { store, limits, metrics, log } = parts;
  const opened = openPayments(db, x402.asset, rpcUrls, metrics);
  const facilitator = new Facilitator(x402.facilitatorUrl, x402.facilitatorToken);
  const settlement = new Settlement({ ...opened, facilitator, metrics, log });
  const intake = new PaymentIntake({ ...opened, asset: x402.asset, facilitator, log });
  const work = new DirectWork(limits);
  return {
    ...opened,
    work,
    deposits: new Deposits({
      ...{ db, ...opened, intake, settlement, log },
      confirmationTimeoutMs: x402.confirmationTimeoutMs,
    }),
    direct: new DirectPayment({ ...opened, intake, settlement, store, work, log }),
    close: async () => {
      await facilitator.close();
      await opened.chain.close();
    },
  };
}
