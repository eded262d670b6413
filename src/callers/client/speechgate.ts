import type { FeedbackReceipt, TopUpStatus, TtsModelsResponse, VoicesResponse } from '../../contract/types.ts';
import { isConfidential } from '../../lib/loopback.ts';
import { boundedResponse, openApi, readJson, type Shape, type Wire } from './api.ts';
import { type Budget, type KnownOfPurchase, type Reservation, totalCap } from './budget.ts';
import {
  buySpeech,
  type Conclusion,
  chargedOf,
  checkPending,
  knownBalance,
  knownOf,
  resolveDeposit,
  resolveOutcome,
  resolveSpeech,
} from './buy.ts';
import { topUpLink } from './card-credits.ts';
import { Catalog, type Quote, VOICES } from './catalog.ts';
import { checkedOptions } from './check-options.ts';
import { type Deposit, deposit, depositOf, readDeposit } from './deposit.ts';
import { readDirect, readVerifiedQuote } from './direct-x402.ts';
import { SpeechgateError } from './errors.ts';
import { type Feedback, type MessageSigner, sendFeedback } from './feedback.ts';
import type { Balance, PaymentWay, Service } from './payment-way.ts';
import { hasExpired, type PendingPurchase } from './pending-purchase.ts';
import { readPrepaid } from './prepaid.ts';
import { readCard } from './read-speech.ts';
import type { Speech, SpeechOrder } from './speech.ts';
import {
  type FollowedTrust,
  type Metadata,
  type PinnedKey,
  requireMetadata,
  TrustedMetadata,
  type TrustListener,
} from './trusted-metadata.ts';

export interface SpeechgateOptions {
  /** The service's origin, such as https://speech.example. http only for loopback. */
  readonly baseUrl: string;
  /** Allows http beyond loopback, for example in a private network. Others in it can read account id and texts. */
  readonly allowInsecureHttp?: boolean;
  readonly pay?: PaymentWay;
  readonly maxPerRequestMicroUsd?: bigint;
  /** Caps all purchases of this client. Signed amounts reported as not charged are a second sum with the same cap. */
  readonly maxTotalMicroUsd?: bigint;
  readonly budget?: Budget;
  /** How long a purchase is retried until its outcome counts as unknown. Default: 60,000; for deposits 300,000. */
  readonly timeoutMs?: number;
  readonly fetch?: typeof globalThis.fetch;
  /** The operator's keys, received out of band, or the value that `onTrust` received. Required to pay with a wallet. */
  readonly trust?: readonly PinnedKey[] | FollowedTrust;
  /** Called after each verification of newer metadata, with the `trust` to store for the next client. */
  readonly onTrust?: TrustListener;
}

export interface CallOptions {
  readonly signal?: AbortSignal;
}

export interface DepositCallOptions extends CallOptions {
  /** Awaited before the deposit is sent: store `pending` for `resumeDeposit`. If it throws, nothing is sent. */
  readonly onPending?: (pending: PendingPurchase) => Promise<void>;
}

export interface SpeakOptions extends CallOptions {
  /** Card credits only. Uses a job, so that the audio can be fetched again after a lost response. Not streamed. */
  readonly durable?: boolean;
  readonly maxMicroUsd?: bigint;
}

const OPTIONS = {
  baseUrl: 'string',
  allowInsecureHttp: 'boolean',
  pay: 'object',
  maxPerRequestMicroUsd: 'bigint',
  maxTotalMicroUsd: 'bigint',
  budget: 'object',
  timeoutMs: 'number',
  fetch: 'function',
  trust: 'object',
  onTrust: 'function',
} as const;
const SPEAK_OPTIONS = { signal: 'object', durable: 'boolean', maxMicroUsd: 'bigint' } as const;

const TIMEOUT_MS = 60_000;
const TOP_UP_STATUS: Shape = { accountId: 'string', balanceMicroUsd: 'amount', status: 'string' };

function openService({ baseUrl, allowInsecureHttp, fetch, trust = [], onTrust }: SpeechgateOptions): Service {
  const url = new URL(baseUrl);
  const { origin, pathname, search } = url;
  if (pathname !== '/' || search) throw new TypeError(`baseUrl must not have a path or a query. Pass ${origin}.`);
  if (!isConfidential(url) && (url.protocol !== 'http:' || allowInsecureHttp !== true)) {
    throw new TypeError(
      `baseUrl ${origin} must be https, or http on loopback. Use https, or set allowInsecureHttp: true.`,
    );
  }
  const api = openApi(origin, boundedResponse, fetch);
  const isPinned = 'metadata' in trust || trust.length > 0;
  return {
    api,
    baseUrl: origin,
    catalog: new Catalog(api),
    metadata: isPinned ? new TrustedMetadata(api, origin, trust, onTrust) : undefined,
    readers: { card: readCard, direct: readDirect, prepaid: readPrepaid, deposit: readDeposit },
  };
}

/** Pays from card credit and from wallets, and verifies the service by pinned keys. */
export class Speechgate {
  readonly #service: Service;
  readonly #options: SpeechgateOptions;
  readonly #budgets: readonly Budget[];
  /** Purchases with an unknown outcome, and refused ones that can still be settled. */
  readonly #unknown = new Map<string, { readonly pending: PendingPurchase; readonly reservation: Reservation }>();

  constructor(options: SpeechgateOptions) {
    this.#options = checkedOptions(options, OPTIONS);
    const { maxTotalMicroUsd, budget } = this.#options;
    this.#service = openService(this.#options);
    this.#budgets = [
      ...(maxTotalMicroUsd === undefined ? [] : [totalCap(maxTotalMicroUsd)]),
      ...(budget ? [budget] : []),
    ];
  }

  /**
   * @throws OverCapError, UntrustedError when nothing was signed
   * @throws ServiceError when nothing was charged
   * @throws OutcomeUnknownError when it may have been charged: pass its `pending` to `resume`
   * @throws AudioLostError when it was or may have been charged and cannot be resumed
   */
  async speak(order: SpeechOrder, options: SpeakOptions = {}): Promise<Speech> {
    const { signal, durable, maxMicroUsd } = checkedOptions(options, SPEAK_OPTIONS);
    const { maxPerRequestMicroUsd, timeoutMs = TIMEOUT_MS } = this.#options;
    const way = requireWay(this.#options);
    await this.#resolveExpired(signal);
    return buySpeech({
      way,
      order,
      service: this.#service,
      budgets: this.#budgets,
      callLimits: [maxPerRequestMicroUsd, maxMicroUsd],
      isDurable: durable ?? false,
      signal,
      timeoutMs,
      onUnknown: (pending, reservation) => this.#unknown.set(pending.identifier, { pending, reservation }),
    });
  }

  /**
   * Repeats the identical request of a purchase with an unknown outcome. It is never charged twice. If the first
   * request never arrived, this buys it now.
   * @throws SpeechgateError as `speak` does
   */
  async resume(pending: PendingPurchase, { signal }: CallOptions = {}): Promise<Speech> {
    checkPending(pending, 'speech', this.#service);
    const { timeoutMs = TIMEOUT_MS } = this.#options;
    const resolution = await resolveSpeech({ pending, service: this.#service, signal, timeoutMs, isRetry: true });
    if (resolution.outcome !== 'unknown')
      await this.#settle(pending, chargedOf(resolution, pending), await knownOf(resolution, pending));
    if (resolution.outcome === 'bought') return resolution.bought;
    throw resolution.error;
  }

  /**
   * The final charge of a purchase. Null while the outcome is unknown or the signature still valid. Sends one request.
   * A card job never expires, so this buys it if its first request never arrived.
   */
  async resolveOutcome(pending: PendingPurchase, { signal }: CallOptions = {}): Promise<Conclusion | null> {
    const conclusion = await resolveOutcome(pending, this.#service, signal);
    if (conclusion)
      await this.#settle(pending, conclusion.chargedMicroUsd, await knownBalance(pending, conclusion.speech));
    return conclusion;
  }

  quote(order: SpeechOrder, { signal }: CallOptions = {}): Promise<Quote> {
    return readVerifiedQuote(order, this.#service, signal);
  }

  models({ signal }: CallOptions = {}): Promise<Wire<TtsModelsResponse>> {
    return this.#service.catalog.read(signal);
  }

  async voices(model?: string, { signal }: CallOptions = {}): Promise<Wire<VoicesResponse>> {
    const query = model === undefined ? {} : { model };
    const send = (signal: AbortSignal) => this.#service.api.GET('/tts/voices', { params: { query }, signal });
    return readJson(signal, VOICES, send);
  }

  async balance({ signal }: CallOptions = {}): Promise<Balance> {
    const way = requireWay(this.#options);
    if (way.balance) return way.balance(this.#service, signal);
    throw new SpeechgateError(
      'directX402 pays on the chain and has no balance at the service. Read the USDC balance of the wallet at a node of the chain.',
    );
  }

  topUpLink(options: { readonly amountCents?: number; readonly account?: string } = {}): string {
    return topUpLink(this.#service.baseUrl, options);
  }

  topUpStatus(account: string, { signal }: CallOptions = {}): Promise<Wire<TopUpStatus>> {
    return readJson(signal, TOP_UP_STATUS, async (signal) => {
      const params = { query: { account } };
      const { data, error, response } = await this.#service.api.GET('/top-up/status', { params, signal });
      const isStatus = response.status === 404 && typeof error === 'object' && error !== null && 'status' in error;
      return { response, error, data: isStatus ? (error as Wire<TopUpStatus>) : data };
    });
  }

  /**
   * Pays USDC into the wallet's prepaid balance. Not refundable. Caps and budgets count spending, not deposits.
   * @throws OutcomeUnknownError: pass its `pending` to `resumeDeposit`
   */
  async deposit(amountMicroUsd: bigint, { signal, onPending }: DepositCallOptions = {}): Promise<Deposit> {
    checkedOptions({ amountMicroUsd }, { amountMicroUsd: 'bigint' });
    const { wallet } = requireWay(this.#options);
    if (!wallet) {
      throw new SpeechgateError('The option `pay` has no wallet. Pass prepaid(wallet) to deposit. Nothing was signed.');
    }
    const { timeoutMs } = this.#options;
    return deposit(wallet, amountMicroUsd, this.#service, { signal, timeoutMs, onPending });
  }

  async resumeDeposit(pending: PendingPurchase, { signal }: CallOptions = {}): Promise<Deposit> {
    checkPending(pending, 'deposit', this.#service);
    const { timeoutMs } = this.#options;
    return depositOf(await resolveDeposit(pending, this.#service, { signal, timeoutMs }));
  }

  feedback(wallet: MessageSigner, feedback: Feedback, { signal }: CallOptions = {}): Promise<FeedbackReceipt> {
    return sendFeedback(wallet, feedback, this.#service, signal);
  }

  /** Verified with the pinned keys. @throws UntrustedError */
  async metadata(): Promise<Metadata> {
    return requireMetadata(this.#service.metadata).read();
  }

  /** The trusted keys, rotations included. Pass them as `trust` to the next client. */
  get trustedKeys(): readonly PinnedKey[] {
    return requireMetadata(this.#service.metadata).keys;
  }

  async #settle({ identifier }: PendingPurchase, chargedMicroUsd: bigint, known: KnownOfPurchase = {}): Promise<void> {
    const unknown = this.#unknown.get(identifier);
    this.#unknown.delete(identifier);
    await unknown?.reservation.settle(chargedMicroUsd, known);
  }

  /** Releases reservations of expired signatures. A failure is retried at the next call. */
  async #resolveExpired(signal: AbortSignal | undefined): Promise<void> {
    const expired = [...this.#unknown.values()].filter(({ pending }) => hasExpired(pending));
    const options = { ...(signal && { signal }) };
    await Promise.all(expired.map(({ pending }) => this.resolveOutcome(pending, options).catch(() => {})));
  }
}

function requireWay({ pay }: SpeechgateOptions): PaymentWay {
  if (pay) return pay;
  throw new SpeechgateError(
    'The option `pay` is missing. Pass cardCredits(accountId), directX402(wallet) or prepaid(wallet). You were not charged.',
  );
}
