import { addUnsettledWorkGauge } from '../admin/gauges.ts';
import { addPaymentGauges, addSigningKeyGauge } from '../admin/watch-gauges.ts';
import type { AudioStore } from '../audio/audio-store.ts';
import { createLinkSigner } from '../audio/link-token.ts';
import type { CredentialProofs, X402Operations } from '../contract/operations.ts';
import type { StandIn } from '../http/bare-request.ts';
import type { OperationContext } from '../http/operation-context.ts';
import type { Belonging } from '../ledger/belonging.ts';
import { credentialAlarm } from '../observability/credential-alarm.ts';
import { previousDirect, previousPrepaid } from '../operations/previous-requests.ts';
import { probeStandIns } from '../operations/probes.ts';
import { x402Operations } from '../operations/x402-operations.ts';
import { CARD_HEADERS } from '../payments/card-credits.ts';
import { DepositReplays, Deposits } from '../payments/deposits.ts';
import { DIRECT_HEADERS, DirectPayment } from '../payments/direct-payment.ts';
import { DirectReplays } from '../payments/direct-replays.ts';
import { DirectWork } from '../payments/direct-work.ts';
import { PaymentIntake } from '../payments/intake.ts';
import { KnownPayments } from '../payments/known-payments.ts';
import { LostAnswers } from '../payments/lost-answers.ts';
import { PrepaidBalance } from '../payments/prepaid-balance.ts';
import { PrepaidReplays } from '../payments/prepaid-replays.ts';
import { x402Reconcilers } from '../reconcile/reconcilers.ts';
import type { X402Config } from '../settings/x402-settings.ts';
import { Facilitator } from '../x402/facilitator.ts';
import { watchKeyExpiry } from '../x402/key-expiry-alarm.ts';
import { ServiceMetadata } from '../x402/metadata.ts';
import { type OpenPayments, openPayments } from '../x402/open-payments.ts';
import { PrepaidVerifier } from '../x402/prepaid-credential.ts';
import { PREPAID } from '../x402/prepaid-terms.ts';
import { Quotes } from '../x402/quotes.ts';
import { Settlement } from '../x402/settlement.ts';
import { currentKey } from '../x402/signing-keys.ts';
import type { Feature, SharedParts } from './feature.ts';
import type { Holds } from './holds-feature.ts';
import type { Speech } from './speech-feature.ts';

export interface X402 extends Feature {
  readonly operations: { readonly x402: X402Operations<OperationContext> };
  readonly proofs: CredentialProofs<OperationContext>;
  /** The request headers of its flows. */
  readonly headers: readonly string[];
  /** What a request that says nothing at all is taken for (R59). */
  readonly standIns: Readonly<Record<string, StandIn>>;
}

/** Speech paid in USDC, by a payment on the chain or from a prepaid balance; deposits, quotes, signed metadata. */
export function openX402(
  shared: SharedParts,
  { belonging, holds, speech, store }: { belonging: Belonging; holds: Holds; speech: Speech; store: AudioStore },
): X402 {
  const { config, db, pauses, work, metrics, log } = shared;
  const { baseUrl, serviceName, catalog, x402, signingKeys, quotes } = config;
  const opened = x402?.rpcUrls && openPayments(db, x402.asset, x402.rpcUrls, metrics);
  const known = new KnownPayments({ db, asset: x402?.asset, resolver: opened?.resolver, log });
  const directReplays = new DirectReplays({ known, store, log });
  const depositReplays = new DepositReplays(db, known);
  const chained =
    x402 && opened && openChained(shared, { ...x402, opened, known, directReplays, depositReplays, store });
  const verifier = x402 && new PrepaidVerifier(serviceName, x402.asset, x402.payees);
  const { signingSecrets } = config.jobs;
  const signer = signingSecrets.length > 0 ? createLinkSigner('prepaid-audio', signingSecrets) : undefined;
  const lostAnswers = new LostAnswers({ db, store, work, metrics, log, patienceMs: config.capturePatienceMs });
  const holdParts = holds.parts();
  const prepaidReplays = new PrepaidReplays({ ...holdParts, lostAnswers });
  const prepaid = verifier && new PrepaidBalance(verifier, prepaidReplays, lostAnswers, holdParts);
  const flows = [
    { headers: DIRECT_HEADERS, flow: chained?.direct, previous: previousDirect(directReplays) },
    { headers: PREPAID.headers, flow: prepaid, previous: previousPrepaid(prepaidReplays) },
  ];
  const headers = flows.flatMap((offered): readonly string[] => offered.headers);
  if (x402 && signingKeys) addSigningKeyGauge(shared.metrics, currentKey(signingKeys));
  const stopWatchingKey = x402 && signingKeys && watchKeyExpiry(currentKey(signingKeys), log);
  warnOfOff(shared);
  const { operations, proofs } = x402Operations({
    ...{ serviceName, catalog, belonging, flows, prepaid, pauses },
    prepaidAudio: { db, store, baseUrl, signer },
    speech: speech.speaking,
    terms: x402,
    foreignHeaders: CARD_HEADERS,
    deposits: chained?.deposits,
    depositReplays,
    quotes: quotes && new Quotes(quotes.secrets, quotes.ttlSeconds),
    metadata:
      x402 && signingKeys
        ? new ServiceMetadata(db, { baseUrl, serviceName, catalog, ...x402, keys: signingKeys })
        : undefined,
  });
  return {
    operations: { x402: operations },
    proofs,
    headers,
    standIns: x402?.probeAnswer === 402 ? probeStandIns([...CARD_HEADERS, ...headers]) : {},
    reconcilers: chained ? x402Reconcilers(db, chained, store) : [],
    stop: () => {
      stopWatchingKey?.();
      chained?.deposits.stop();
    },
    close: async () => chained?.close(),
  };
}

interface ChainedParts extends X402Config {
  readonly opened: OpenPayments;
  readonly known: KnownPayments;
  readonly directReplays: DirectReplays;
  readonly depositReplays: DepositReplays;
  readonly store: AudioStore;
}

/** The parts that need the chain (R58). */
function openChained(
  { config, db, inProgress, metrics, log }: SharedParts,
  { asset, opened, known, directReplays, depositReplays, store, ...x402 }: ChainedParts,
) {
  const onRefused = credentialAlarm({ metrics, log }, 'X402_FACILITATOR_AUTH');
  const facilitator = new Facilitator(x402.facilitatorUrl, x402.facilitatorToken, onRefused);
  const settlement = new Settlement({ ...opened, facilitator, metrics, log });
  const intake = new PaymentIntake({ ...opened, known, asset, facilitator, log });
  const work = new DirectWork(config.unpaidWork);
  const { confirmationTimeoutMs } = x402;
  addUnsettledWorkGauge(metrics, work);
  addPaymentGauges(metrics, db);
  return {
    ...opened,
    deposits: new Deposits({ db, ...opened, intake, replays: depositReplays, settlement, log, confirmationTimeoutMs }),
    direct: new DirectPayment({ ...opened, replays: directReplays, intake, settlement, store, work, inProgress, log }),
    close: async () => {
      await facilitator.close();
      await opened.chain.close();
    },
  };
}

function warnOfOff({ config: { x402, quotes, signingKeys }, log }: SharedParts): void {
  if (!x402) log.warn('payment under x402 is off: X402_PAY_TO is unset, its endpoints answer 503');
  else if (!x402.rpcUrls) log.warn('direct payment under x402 is off: X402_RPC_URL is unset, it answers 503');
  if (!quotes) log.warn('quotes are off: QUOTE_SECRET is unset, they answer 503');
  if (x402 && !signingKeys) log.warn('signed metadata is off: SIGNING_KEYS_FILE is unset, it answers 503');
}
