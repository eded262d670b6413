import type { FeedbackReceipt, TopUpStatus, TtsModelsResponse, VoicesResponse } from '../contract/types.ts';
import { isConfidential } from '../lib/loopback.ts';
import { openApi, type Wire } from './api.ts';
import type { Budget, KnownOfPurchase, Reservation } from './budget.ts';
import { buySpeech, chargedOf, knownOf, pursueSpeech } from './buy.ts';
import { TotalCap } from './caps.ts';
import { Catalog, VOICES } from './catalog.ts';
import { AMOUNT, CLIENT_OPTIONS, checkedOptions, SPEAK_OPTIONS } from './check-options.ts';
import { type Conclusion, checkPending, conclude } from './conclude.ts';
import { type Deposit, deposit, deposited, pursueDeposit } from './deposit.ts';
import { SpeechgateError } from './errors.ts';
import { type Feedback, type MessageSigner, sendFeedback } from './feedback.ts';
import type { Balance, PaymentWay, Service } from './payment-way.ts';
import type { PendingPurchase } from './pending-purchase.ts';
import { type Quote, readQuote } from './quote.ts';
import { hasEnded } from './read-refusal.ts';
import { read } from './reading.ts';
import { required } from './sign-payment.ts';
import type { Speech, SpeechOrder } from './speech.ts';
import { SpeechTimeout } from './speech-timeout.ts';
import { readTopUpStatus, topUpLink } from './top-up.ts';
import { TrustedMetadata, type TrustListener } from './trusted-metadata.ts';
import type { FollowedTrust, Metadata, PinnedKey } from './verify-metadata.ts';

export interface SpeechgateOptions {
  /** Where the service is: an origin, such as https://speech.example. By http only on this machine (loopback). */
  readonly baseUrl: string;
  /** Allows http elsewhere, such as in a private network: whoever is on the way reads the account's id and the texts. */
  readonly allowInsecureHttp?: boolean;
  /** How speech is paid; without it nothing can be bought. */
  readonly pay?: PaymentWay;
  /** The operator's keys, got out of band, or what `onTrust` was given of them. A wallet pays nobody without them. */
  readonly trust?: readonly PinnedKey[] | FollowedTrust;
  /** Is given what to keep for the next client's `trust`, each time newer metadata was verified. */
  readonly onTrust?: TrustListener;
  readonly maxPerRequestMicroUsd?: bigint;
  /** What this client may spend in its life. As much again may be signed and, by the service's word, not charged. */
  readonly maxTotalMicroUsd?: bigint;
  readonly budget?: Budget;
  /** How long a purchase is asked for before its end is told as unknown, in milliseconds: 60,000, or 300,000 for a deposit. */
  readonly patienceMs?: number;
  /** Instead of the platform's. */
  readonly fetch?: typeof globalThis.fetch;
}

export interface CallOptions {
  readonly signal?: AbortSignal;
}

export interface SpeakOptions extends CallOptions {
  /** Of card credits: as a job, whose audio can be fetched again when an answer is lost. It is not streamed. */
  readonly durable?: boolean;
  readonly maxMicroUsd?: bigint;
}

export interface DepositCallOptions extends CallOptions {
  /** Is given the deposit before it leaves, to be kept for `resumeDeposit`. Waited for; when it throws, nothing leaves. */
  readonly onPending?: (pending: PendingPurchase) => Promise<void>;
}

const PATIENCE_MS = 60_000;

/** A caller's client of one service. */
export class Speechgate {
  readonly #service: Service;
  readonly #options: SpeechgateOptions;
  readonly #budgets: readonly Budget[];
  /** What this client has set aside for purchases whose end is unknown, or that may still be taken. */
  readonly #unknown = new Map<string, { readonly pending: PendingPurchase; readonly reservation: Reservation }>();

  /** @throws TypeError for an option that is unknown, or is not what it has to be */
  constructor(options: SpeechgateOptions) {
    this.#options = checkedOptions('Speechgate', options, CLIENT_OPTIONS);
    const { baseUrl, allowInsecureHttp, trust = [], onTrust, maxTotalMicroUsd, budget, fetch } = this.#options;
    const url = new URL(baseUrl);
    const { origin, pathname, search } = url;
    if (pathname !== '/' || search) throw new TypeError(`baseUrl has to be an origin, such as ${origin}.`);
    if (!isConfidential(url) && (url.protocol !== 'http:' || allowInsecureHttp !== true)) {
      throw new TypeError(`baseUrl has to be https, or http on this machine; ${origin} needs allowInsecureHttp: true.`);
    }
    const api = openApi(origin, fetch);
    const isPinned = 'metadata' in trust || trust.length > 0;
    const metadata = isPinned ? new TrustedMetadata(api, origin, trust, onTrust) : undefined;
    this.#service = { api, baseUrl: origin, catalog: new Catalog(api), metadata, timeout: new SpeechTimeout(api) };
    this.#budgets = [
      ...(maxTotalMicroUsd === undefined ? [] : [new TotalCap(maxTotalMicroUsd)]),
      ...(budget ? [budget] : []),
    ];
  }

  /**
   * Buys speech.
   * @throws OverCapError, UntrustedError before anything is signed
   * @throws ServiceError when the service refused it and nothing was charged
   * @throws OutcomeUnknownError when it may have been charged: `resume` its `pending`
   * @throws AudioLostError when it was or may have been charged, and can't be resumed
   */
  async speak(order: SpeechOrder, options: SpeakOptions = {}): Promise<Speech> {
    const { signal, durable, maxMicroUsd } = checkedOptions('speak', options, SPEAK_OPTIONS);
    const { maxPerRequestMicroUsd, patienceMs = PATIENCE_MS } = this.#options;
    const way = this.#way();
    await this.#concludeEnded(signal);
    return buySpeech({
      way,
      order,
      service: this.#service,
      budgets: this.#budgets,
      callLimits: [maxPerRequestMicroUsd, maxMicroUsd],
      isDurable: durable ?? false,
      signal,
      patienceMs,
      onUnknown: (pending, reservation) => this.#unknown.set(pending.identifier, { pending, reservation }),
    });
  }

  /**
   * Asks for the speech of a purchase whose end is unknown, by the identical request. It is bought by it if it had never
   * arrived, and is never paid twice.
   * @throws SpeechgateError as `speak` does
   */
  async resume(pending: PendingPurchase, { signal }: CallOptions = {}): Promise<Speech> {
    checkPending(pending, 'speech', this.#service);
    const { patienceMs = PATIENCE_MS } = this.#options;
    const end = await pursueSpeech({ pending, service: this.#service, signal, patienceMs, isRepetition: true });
    if (end.outcome !== 'unknown') await this.#settle(pending, chargedOf(end, pending), await knownOf(end, pending));
    if (end.outcome === 'bought') return end.bought;
    throw end.error;
  }

  /**
   * What a purchase came to, for those who must not buy it anew: null while that is unknown, or it could still be bought.
   * It is asked once. A card job has no such end, and is bought if it had never arrived.
   */
  async conclude(pending: PendingPurchase, { signal }: CallOptions = {}): Promise<Conclusion | null> {
    const conclusion = await conclude(pending, this.#service, signal);
    if (conclusion) await this.#settle(pending, conclusion.chargedMicroUsd);
    return conclusion;
  }

  /** The price of an order. Only the text's length and SHA-256 are sent. */
  quote(order: SpeechOrder, { signal }: CallOptions = {}): Promise<Quote> {
    return readQuote(order, { ...this.#service, signal });
  }

  models({ signal }: CallOptions = {}): Promise<Wire<TtsModelsResponse>> {
    return this.#service.catalog.read(signal);
  }

  /** @param model the default one when it is left out */
  async voices(model?: string, { signal }: CallOptions = {}): Promise<Wire<VoicesResponse>> {
    const query = model === undefined ? {} : { model };
    const ask = (signal: AbortSignal) => this.#service.api.GET('/tts/voices', { params: { query }, signal });
    return read(signal, VOICES, ask);
  }

  /** What is left: of the credit account, or of the wallet's prepaid balance. */
  async balance({ signal }: CallOptions = {}): Promise<Balance> {
    const way = this.#way();
    if (way.balance) return way.balance(this.#service, signal);
    throw new SpeechgateError("A wallet's own USDC is on the chain: ask a node, or the wallet.");
  }

  /**
   * Pays USDC into the wallet's prepaid balance. It is not paid back; caps and budgets count what is spent from it.
   * @throws OutcomeUnknownError: give its `pending` to `resumeDeposit`
   */
  async deposit(amountMicroUsd: bigint, { signal, onPending }: DepositCallOptions = {}): Promise<Deposit> {
    checkedOptions('deposit', { amountMicroUsd }, { amountMicroUsd: AMOUNT });
    const { wallet } = this.#way();
    if (!wallet) throw new SpeechgateError('A deposit needs a wallet: prepaid(wallet).');
    const { patienceMs } = this.#options;
    return deposit(wallet, amountMicroUsd, this.#service, { signal, patienceMs, onPending });
  }

  /** Asks for the end of a deposit by the identical request. It is never paid twice. */
  async resumeDeposit(pending: PendingPurchase, { signal }: CallOptions = {}): Promise<Deposit> {
    checkPending(pending, 'deposit', this.#service);
    const { patienceMs } = this.#options;
    return deposited(await pursueDeposit(pending, this.#service, { signal, patienceMs }));
  }

  /** The page where a person buys credit by card. @param options.account the one to add to; a new one otherwise */
  topUpLink(options: { readonly amountCents?: number; readonly account?: string } = {}): string {
    return topUpLink(this.#service.baseUrl, options);
  }

  /** Whether the account exists, and its balance. */
  topUpStatus(account: string, { signal }: CallOptions = {}): Promise<Wire<TopUpStatus>> {
    return readTopUpStatus(account, this.#service, signal);
  }

  /** Sends feedback that the wallet signs. */
  feedback(wallet: MessageSigner, feedback: Feedback, { signal }: CallOptions = {}): Promise<FeedbackReceipt> {
    return sendFeedback(wallet, feedback, this.#service, signal);
  }

  /** The payload of the signed metadata, verified under the pinned keys. @throws UntrustedError */
  async metadata(): Promise<Metadata> {
    return required(this.#service.metadata).read();
  }

  /** The keys that are trusted by now, rotations included: what to give as `trust` the next time. */
  get trustedKeys(): readonly PinnedKey[] {
    return required(this.#service.metadata).keys;
  }

  #way(): PaymentWay {
    const { pay } = this.#options;
    if (pay) return pay;
    throw new SpeechgateError('Say how to pay: cardCredits(accountId), directX402(wallet) or prepaid(wallet).');
  }

  /** Settles what this client had set aside; what another process had is its own budget's. */
  async #settle({ identifier }: PendingPurchase, chargedMicroUsd: bigint, known: KnownOfPurchase = {}): Promise<void> {
    const unknown = this.#unknown.get(identifier);
    this.#unknown.delete(identifier);
    await unknown?.reservation.settle(chargedMicroUsd, known);
  }

  /** Frees what was set aside for signatures that have ended. What can't be told now is asked for again the next time. */
  async #concludeEnded(signal: AbortSignal | undefined): Promise<void> {
    const ended = [...this.#unknown.values()].filter(({ pending }) => hasEnded(pending));
    await Promise.all(
      ended.map(({ pending }) => this.conclude(pending, { ...(signal && { signal }) }).catch(() => {})),
    );
  }
}
