import type { FastifyInstance } from 'fastify';
import { currentKey, watchKeyExpiry } from '../config/signing-keys.ts';
import type { X402Config } from '../config/x402-settings.ts';
import { x402Routes } from '../contract/routes.ts';
import { addNodeGauge, addPaymentGauges, addSigningKeyGauge, addUnsettledWorkGauge } from '../http/admin/gauges.ts';
import { bodyLimitOf, operations } from '../http/operations.ts';
import type { ProbeExample } from '../http/plugins/bodies.ts';
import { x402Operations } from '../http/routes/x402-operations.ts';
import type { DatabaseIdentity } from '../ledger/database-identity.ts';
import { credentialAlarm } from '../observability/outside.ts';
import { CARD_HEADERS } from '../payments/card/card-credits.ts';
import { DIRECT_HEADERS, DirectPayment } from '../payments/direct/direct-payment.ts';
import { DirectReplays } from '../payments/direct/direct-replays.ts';
import { DirectWork } from '../payments/direct/direct-work.ts';
import { DepositReplays, Deposits } from '../payments/prepaid/deposits.ts';
import { PrepaidAudioStore, PrepaidBalance, PrepaidReplays } from '../payments/prepaid/prepaid-balance.ts';
import { PrepaidVerifier } from '../payments/prepaid/prepaid-credential.ts';
import { SPEECH_EXAMPLE } from '../payments/x402/discovery.ts';
import { Facilitator, Facilitators } from '../payments/x402/facilitator.ts';
import { ServiceMetadata } from '../payments/x402/metadata.ts';
import { NodeWatch } from '../payments/x402/node-watch.ts';
import { PaymentIntake } from '../payments/x402/payment-intake.ts';
import { PaymentLookup } from '../payments/x402/payment-lookup.ts';
import { Quotes } from '../payments/x402/quotes.ts';
import { type OpenPayments, openPayments } from '../payments/x402/resolver.ts';
import { Settlement } from '../payments/x402/settlement.ts';
import { PREPAID_SIGNING } from '../payments/x402/signed-types.ts';
import { x402Reconcilers } from '../reconcile/reconcilers.ts';
import { synchronousCatalog } from '../speech/order.ts';
import type { AudioStore } from '../speech/store/audio-store.ts';
import { createLinkSigner } from '../speech/store/link-token.ts';
import type { SharedParts } from './feature.ts';
import type { Holds } from './holds-feature.ts';
import type { Speech } from './speech-feature.ts';

/** A payment may wait 120 s for confirmations, or for the facilitator in addition to synthesis. */
const PAYMENT_WAIT_MS = 180_000;

/** Speech paid in USDC (direct or prepaid), deposits, quotes and signed metadata. */
export function openX402(
  shared: SharedParts,
  {
    databaseIdentity,
    holds,
    speech,
    store,
  }: { databaseIdentity: DatabaseIdentity; holds: Holds; speech: Speech; store: AudioStore },
) {
  const { config, db, pauses, work, metrics, log } = shared;
  const { baseUrl, serviceName, x402, signingKeys, quotes } = config;
  const catalog = synchronousCatalog(config.catalog);
  const opened = x402?.rpcUrls && openPayments(db, x402.asset, x402.rpcUrls, { metrics, log });
  const nodeWatch = opened && new NodeWatch(opened.chain, x402.asset, log);
  if (nodeWatch) addNodeGauge(metrics, nodeWatch);
  const hasOtherDomain = async () => (await nodeWatch?.hasOtherDomain()) ?? false;
  const lookup = new PaymentLookup({ db, asset: x402?.asset, resolver: opened?.resolver, chain: opened?.chain });
  const directReplays = new DirectReplays({ lookup, store });
  const depositReplays = new DepositReplays(db, lookup);
  const chained =
    x402 && opened && openChained(shared, { ...x402, opened, lookup, directReplays, depositReplays, store });
  const verifier = x402 && new PrepaidVerifier(serviceName, x402.asset, x402.payees);
  const { signingSecrets } = config.jobs;
  const signer = signingSecrets.length > 0 ? createLinkSigner('prepaid-audio', signingSecrets) : undefined;
  const audio = new PrepaidAudioStore({ store, maxBytesPerMinute: config.jobs.prepaidAudioBytes, work });
  const prepaidReplays = new PrepaidReplays(db);
  const prepaid = verifier && new PrepaidBalance(verifier, prepaidReplays, audio, holds.parts());
  const flows = [
    { headers: DIRECT_HEADERS, flow: chained?.direct, replays: directReplays },
    { headers: PREPAID_SIGNING.headers, flow: prepaid, replays: prepaidReplays },
  ];
  const headers = flows.flatMap((offered): readonly string[] => offered.headers);
  if (x402 && signingKeys) addSigningKeyGauge(shared.metrics, currentKey(signingKeys));
  const stopWatchingKey = x402 && signingKeys && watchKeyExpiry(currentKey(signingKeys), log);
  warnOfOff(shared);
  const { operations: own, credentialChecks } = x402Operations({
    serviceName,
    catalog,
    databaseIdentity,
    flows,
    prepaid,
    pauses,
    prepaidAudio: { db, audio, baseUrl, signer },
    speech: speech.speaking,
    terms: x402,
    foreignHeaders: CARD_HEADERS,
    deposits: chained?.deposits,
    hasOtherDomain,
    depositReplays,
    quotes: quotes && new Quotes(quotes.secrets, quotes.ttlSeconds),
    metadata:
      x402 && signingKeys
        ? new ServiceMetadata(db, { baseUrl, serviceName, catalog, ...x402, keys: signingKeys })
        : undefined,
  });
  const served = {
    routes: x402Routes(own, credentialChecks),
    probeExamples: x402?.probeAnswer === 402 ? probeExamplesOf([...CARD_HEADERS, ...headers]) : {},
    bodyLimits: { createX402Speech: bodyLimitOf(catalog) },
    waitMs: PAYMENT_WAIT_MS,
  };
  return {
    plugin: async (server: FastifyInstance) => void server.register(operations, served),
    headers,
    nodeState: () => nodeWatch?.state,
    start: async () => {
      nodeWatch?.start();
      return undefined;
    },
    reconcilers: chained ? x402Reconcilers(db, chained, store) : [],
    stop: () => {
      stopWatchingKey?.();
      nodeWatch?.stop();
      chained?.deposits.stop();
    },
    close: async () => chained?.close(),
  };
}

interface ChainedParts extends X402Config {
  readonly opened: OpenPayments;
  readonly lookup: PaymentLookup;
  readonly directReplays: DirectReplays;
  readonly depositReplays: DepositReplays;
  readonly store: AudioStore;
}

/** Opens what needs the chain (R58). */
export function openChained(
  { config, db, metrics, log }: SharedParts,
  { asset, opened, lookup, directReplays, depositReplays, store, ...x402 }: ChainedParts,
) {
  const calls = metrics.outside('facilitator');
  const facilitators = new Facilitators(
    x402.facilitators.map(({ url, credential, setting }) => {
      const onRefused = credentialAlarm({ metrics, log }, setting);
      return new Facilitator(url, credential, x402.settleTimeoutMs, onRefused, calls);
    }),
  );
  const settlement = new Settlement({ ...opened, metrics });
  const intake = new PaymentIntake({ ...opened, lookup, asset, facilitators, metrics });
  const directWork = new DirectWork(config.unpaidWork);
  const { confirmationTimeoutMs, inclusionTimeoutMs } = x402;
  addUnsettledWorkGauge(metrics, directWork);
  addPaymentGauges(metrics, db);
  return {
    ...opened,
    deposits: new Deposits({ db, ...opened, intake, replays: depositReplays, settlement, confirmationTimeoutMs }),
    direct: new DirectPayment({
      ...opened,
      replays: directReplays,
      intake,
      settlement,
      store,
      directWork,
      inclusionTimeoutMs,
    }),
    close: async () => {
      await facilitators.close();
      await opened.chain.close();
    },
  };
}

function warnOfOff({ config: { x402, quotes, signingKeys }, log }: SharedParts): void {
  if (!x402) log.warn('payment in USDC (x402) is off, because X402_PAY_TO is not set. Set it to turn payment on');
  else if (!x402.rpcUrls)
    log.warn('direct payments and deposits in USDC are off, because X402_RPC_URL is not set. Set it to turn them on');
  if (!quotes) log.warn('quotes are off, because QUOTE_SECRET is not set. Set it to turn quotes on');
  if (x402 && !signingKeys)
    log.warn('signed metadata is off, because SIGNING_KEYS_FILE is not set. Set it to turn metadata on');
}

/** The requests that bare probes stand for, by operationId (R59). A payment header makes a request no probe. */
const probeExamplesOf = (unlessHeaders: readonly string[]): Readonly<Record<string, ProbeExample>> => ({
  getX402Speech: { query: SPEECH_EXAMPLE, body: undefined, unlessHeaders },
  createX402Speech: { query: {}, body: SPEECH_EXAMPLE, unlessHeaders },
});
