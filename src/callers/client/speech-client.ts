import type { TopUpStatus, TtsModelsResponse, VoicesResponse } from '../../contract/types.ts';
import { isConfidential } from '../../lib/loopback.ts';
import { openApi, readJson, type Shape, type Wire } from './api.ts';
import { type Budget, type KnownOfPurchase, type Reservation, totalCap } from './budget.ts';
import {
  buySpeech,
  type Conclusion,
  chargedOf,
  checkPending,
  knownOf,
  readerOf,
  resolveOutcome,
  resolveSpeech,
} from './buy.ts';
import { topUpLink } from './card-credits.ts';
import { Catalog, type Quote, readQuote, VOICES } from './catalog.ts';
import { CLIENT_OPTIONS, checkedOptions, SPEAK_OPTIONS } from './check-options.ts';
import { SpeechgateError } from './errors.ts';
import type { Balance, PaymentWay, Service } from './payment-way.ts';
import { hasExpired, type PendingPurchase } from './pending-purchase.ts';
import { readCard } from './read-speech.ts';
import type { Speech, SpeechOrder } from './speech.ts';

export interface ClientOptions {
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
}

export interface CallOptions {
  readonly signal?: AbortSignal;
}

export interface SpeakOptions extends CallOptions {
  /** Card credits only. Uses a job, so that the audio can be fetched again after a lost response. Not streamed. */
  readonly durable?: boolean;
  readonly maxMicroUsd?: bigint;
}

const TIMEOUT_MS = 60_000;
const TOP_UP_STATUS: Shape = { accountId: 'string', balanceMicroUsd: 'amount', status: 'string' };

export function openService({ baseUrl, allowInsecureHttp, fetch }: ClientOptions): Service {
  const url = new URL(baseUrl);
  const { origin, pathname, search } = url;
  if (pathname !== '/' || search) throw new TypeError(`baseUrl must be an origin, such as ${origin}.`);
  if (!isConfidential(url) && (url.protocol !== 'http:' || allowInsecureHttp !== true)) {
    throw new TypeError(`baseUrl must be https, or http on loopback. Set allowInsecureHttp: true to allow ${origin}.`);
  }
  const api = openApi(origin, fetch);
  return { api, baseUrl: origin, catalog: new Catalog(api), metadata: undefined, readers: { card: readCard } };
}

/** Buys speech from card credit, and does all else that needs no wallet. */
export class SpeechClient {
  readonly #service: Service;
  readonly #options: ClientOptions;
  readonly #budgets: readonly Budget[];
  /** Purchases with an unknown outcome, and refused ones that can still be settled. */
  readonly #unknown = new Map<string, { readonly pending: PendingPurchase; readonly reservation: Reservation }>();

  /** @param service what a client that also pays from wallets has opened */
  constructor(options: ClientOptions, service?: Service) {
    this.#options = checkedOptions('Speechgate', options, CLIENT_OPTIONS);
    const { pay, maxTotalMicroUsd, budget } = this.#options;
    this.#service = service ?? openService(this.#options);
    if (pay) readerOf(this.#service, pay.flow);
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
    const { signal, durable, maxMicroUsd } = checkedOptions('speak', options, SPEAK_OPTIONS);
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
    if (conclusion) await this.#settle(pending, conclusion.chargedMicroUsd);
    return conclusion;
  }

  quote(order: SpeechOrder, { signal }: CallOptions = {}): Promise<Quote> {
    return readQuote(order, this.#service, signal);
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
      'directX402 has no balance at the service. Read the USDC balance of the wallet on the chain.',
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

export function requireWay({ pay }: ClientOptions): PaymentWay {
  if (pay) return pay;
  throw new SpeechgateError('`pay` is missing. Use cardCredits(accountId), directX402(wallet) or prepaid(wallet).');
}
