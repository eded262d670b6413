/**
 * The entry `.` of the package for callers, for Node.js 20+ and browsers: pays from card credit, and is small enough for
 * any page. The client of `./x402` also pays from wallets, settles what earlier processes left open in a budget, and
 * checks the end of audio.
 */
import type { TtsJob, TtsModelsResponse, VoicesResponse } from '../../contract/types.ts';
import { isConfidential } from '../../lib/loopback.ts';
import { openApi, readData, type Wire } from './api.ts';
import { type Budget, checkCall, type Reservation } from './budget.ts';
import { cardRequest, topUpLink } from './card-credits.ts';
import { picoUsd, priceOf, readMicroUsd } from './catalog.ts';
import { checkedOptions } from './check-options.ts';
import { AudioLostError, OutcomeUnknownError, OverCapError, ServiceError, SpeechgateError } from './errors.ts';
import { boundedCharge, isJob, type PendingPurchase } from './pending-purchase.ts';
import { type CardResponse, failAsLost, receiptOf, responseLost, topUpLinkOf } from './read-speech.ts';
import { audioLostOutcome, faultOf, isTransient, paymentStateOf, serviceError, unknownModel } from './service-error.ts';
import type { Receipt, Speech, SpeechOrder } from './speech.ts';
import { delayMs, pause, withDeadline } from './waiting.ts';

export type { AccountBalance, Budget, KnownOfPurchase, Reservation } from './budget.ts';
export {
  AudioLostError,
  InvalidRequestError,
  OutcomeUnknownError,
  OverCapError,
  PaymentRequiredError,
  PriceChangedError,
  RateLimitedError,
  ServiceError,
  ServiceUnavailableError,
  SpeechgateError,
  UnreachableError,
} from './errors.ts';
export type { UsedCap } from './money-text.ts';
export type { Flow, PendingPurchase } from './pending-purchase.ts';
export type { Receipt, Speech, SpeechOrder } from './speech.ts';

export interface CardCredits {
  readonly accountId: string;
}

/** @param accountId a bearer secret */
export const cardCredits = (accountId: string): CardCredits => ({ accountId });

export interface SpeechgateOptions {
  /** The service's origin, such as https://speech.example. http only for loopback. */
  readonly baseUrl: string;
  /** Allows http beyond loopback, for example in a private network. Others in it can read account id and texts. */
  readonly allowInsecureHttp?: boolean;
  readonly pay?: CardCredits;
  readonly maxPerRequestMicroUsd?: bigint;
  /** Caps all purchases of this client. */
  readonly maxTotalMicroUsd?: bigint;
  readonly budget?: Budget;
  /** How long a durable purchase is retried until its outcome counts as unknown. Default: 60,000. */
  readonly timeoutMs?: number;
  readonly fetch?: typeof globalThis.fetch;
}

export interface CallOptions {
  readonly signal?: AbortSignal;
}

export interface SpeakOptions extends CallOptions {
  /** Uses a job, so that the audio can be fetched again after a lost response. Not streamed. */
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
} as const;
const SPEAK_OPTIONS = { signal: 'object', durable: 'boolean', maxMicroUsd: 'bigint' } as const;

const TIMEOUT_MS = 60_000;
const RESPONSE_TIMEOUT_MS = 150_000;
const REFUSALS = 3;
const POLL_MS = 1_000;

interface Purchase {
  readonly pending: PendingPurchase;
  /** Whether an earlier request may have been charged. */
  isRetry: boolean;
}

export class Speechgate {
  readonly #options: SpeechgateOptions;
  readonly #service: CardResponse['service'];
  /** What was charged, and the most that open purchases can be. */
  #countedMicroUsd = 0n;
  /** Of purchases with an unknown outcome. */
  readonly #unsettled = new Map<string, Reservation['settle']>();
  /** Read again once a purchase fails, since prices may have changed. */
  #catalog: Wire<TtsModelsResponse> | undefined;

  constructor(options: SpeechgateOptions) {
    this.#options = checkedOptions(options, OPTIONS);
    const { baseUrl, allowInsecureHttp, pay, fetch } = this.#options;
    const url = new URL(baseUrl);
    if (!isConfidential(url) && !allowInsecureHttp)
      throw new TypeError('baseUrl must be https; http needs loopback or allowInsecureHttp: true.');
    if (pay && !('accountId' in pay)) throw walletsOnly();
    const api = openApi(url.origin, (response) => response, fetch);
    this.#service = { api, baseUrl: url.origin };
  }

  /**
   * @throws OverCapError when nothing was sent
   * @throws ServiceError when nothing was charged
   * @throws OutcomeUnknownError when it may have been charged: pass its `pending` to `resume`
   * @throws AudioLostError when it was or may have been charged and cannot be resumed
   */
  async speak(order: SpeechOrder, options: SpeakOptions = {}): Promise<Speech> {
    const { signal, durable = false, maxMicroUsd: limit } = checkedOptions(options, SPEAK_OPTIONS);
    const { budget, maxPerRequestMicroUsd, maxTotalMicroUsd } = this.#options;
    const { models, defaultModel } = this.#catalog ?? (await this.models({ ...(signal && { signal }) }));
    const { model = defaultModel } = order;
    const rate = models.find(({ id }) => id === model)?.pricing.ratePerCharUsd;
    if (rate === undefined) throw unknownModel(model);
    const maxMicroUsd = priceOf(order.text, picoUsd(rate.toFixed(12)));
    checkCall(maxMicroUsd, [maxPerRequestMicroUsd, limit]);
    const { baseUrl } = this.#service;
    const pending = cardRequest(this.#accountId, { ...order, model }, { baseUrl, isDurable: durable, maxMicroUsd });
    if (maxTotalMicroUsd !== undefined) {
      const leftMicroUsd = maxTotalMicroUsd - this.#countedMicroUsd;
      const cap = { scope: 'client', limitMicroUsd: maxTotalMicroUsd, leftMicroUsd } as const;
      if (maxMicroUsd > leftMicroUsd) throw new OverCapError({ ...cap, wantedMicroUsd: maxMicroUsd });
    }
    this.#countedMicroUsd += maxMicroUsd;
    let reservation: Reservation | undefined;
    const settle: Reservation['settle'] = async (chargedMicroUsd, known) => {
      this.#countedMicroUsd += chargedMicroUsd - maxMicroUsd;
      await reservation?.settle(chargedMicroUsd, known);
    };
    try {
      reservation = await budget?.reserve({ flow: 'card', maxMicroUsd });
      await reservation?.record(pending);
      signal?.throwIfAborted();
    } catch (error) {
      await settle(0n, { isUnsent: true });
      throw error;
    }
    return this.#settle(pending, settle, this.#buy({ pending, isRetry: false }, signal));
  }

  /** Repeats the identical request of a durable purchase with an unknown outcome. It is never charged twice. */
  async resume(pending: PendingPurchase, { signal }: CallOptions = {}): Promise<Speech> {
    const { baseUrl } = this.#service;
    if (pending.flow !== 'card') throw walletsOnly();
    if (!isJob(pending) || pending.baseUrl !== baseUrl)
      throw new SpeechgateError(
        `${pending.identifier} is not a \`durable\` purchase at ${baseUrl}. Pass one. Nothing was sent.`,
      );
    return this.#settle(
      pending,
      this.#unsettled.get(pending.identifier),
      this.#buy({ pending, isRetry: true }, signal),
    );
  }

  async models({ signal }: CallOptions = {}): Promise<Wire<TtsModelsResponse>> {
    this.#catalog = await readData(signal, (signal) => this.#service.api.GET('/tts/models', { signal }));
    return this.#catalog;
  }

  voices(model?: string, { signal }: CallOptions = {}): Promise<Wire<VoicesResponse>> {
    const params = { query: model === undefined ? {} : { model } };
    return readData(signal, (signal) => this.#service.api.GET('/tts/voices', { params, signal }));
  }

  async balance({ signal }: CallOptions = {}) {
    const account = this.#accountId;
    const params = { path: { accountId: account } };
    const { balanceMicroUsd } = await readData(signal, (signal) =>
      this.#service.api.GET('/credits/{accountId}', { params, signal }),
    );
    return { flow: 'card' as const, account, balanceMicroUsd: BigInt(balanceMicroUsd) };
  }

  topUpLink(options: { readonly amountCents?: number; readonly account?: string } = {}): string {
    return topUpLink(this.#service.baseUrl, options);
  }

  get #accountId(): string {
    const { pay } = this.#options;
    if (pay) return pay.accountId;
    throw new SpeechgateError('`pay` is missing. Pass cardCredits(accountId). You were not charged.');
  }

  /** A budget that can't be written keeps the reservation; the purchase itself succeeded. */
  async #settle(pending: PendingPurchase, settle: Reservation['settle'] = async () => {}, buying: Promise<Speech>) {
    try {
      const speech = await buying;
      await settle(speech.receipt.chargedMicroUsd).catch(() => {});
      return speech;
    } catch (error) {
      this.#catalog = undefined;
      const charged = error instanceof AudioLostError ? (error.chargedMicroUsd ?? error.maxMicroUsd) : 0n;
      if (error instanceof OutcomeUnknownError) this.#unsettled.set(pending.identifier, settle);
      else await settle(charged).catch(() => {});
      throw error;
    }
  }

  /** Repeats what was not charged, and, with its key, a durable request whose response was lost. */
  async #buy(purchase: Purchase, signal: AbortSignal | undefined): Promise<Speech> {
    const { pending } = purchase;
    const deadline = Date.now() + (this.#options.timeoutMs ?? TIMEOUT_MS);
    for (let attempt = 1; ; attempt += 1) {
      const send = (signal: AbortSignal) => this.#send(purchase, signal);
      const result = await withDeadline(RESPONSE_TIMEOUT_MS, signal, send).then(
        (speech) => ({ speech }),
        (cause: unknown) => ({ cause }),
      );
      if ('speech' in result) return result.speech;
      const { cause } = result;
      if (cause instanceof AudioLostError) throw cause;
      const fault = cause instanceof ServiceError ? cause : undefined;
      const isRefused = fault && paymentStateOf(fault, purchase) === 'not_charged';
      if (isRefused && (!isTransient(fault) || attempt === REFUSALS)) throw fault;
      if (!isRefused && !isJob(pending)) throw responseLost(pending.maxMicroUsd, cause, null);
      purchase.isRetry ||= !isRefused;
      const delay = delayMs(attempt, fault?.retryAfterSeconds ?? null);
      const isOver = Date.now() + delay > deadline || (await pause(delay, signal).catch(() => true));
      if (isOver && isRefused) throw fault;
      if (isOver) throw new OutcomeUnknownError(pending, { cause: signal?.reason ?? cause });
    }
  }

  async #send(purchase: Purchase, signal: AbortSignal): Promise<Speech> {
    const { pending, isRetry } = purchase;
    const service = this.#service;
    const { response, data, error } = await service.api.POST(pending.target as '/tts', {
      headers: pending.headers,
      body: { text: pending.body },
      bodySerializer: () => pending.body,
      parseAs: 'stream',
      signal,
    });
    const paid = { pending, response, errorBody: error, isRetry, service, signal };
    if (!response.ok) throw serviceError(faultOf(response, error), topUpLinkOf(paid));
    const charged = readMicroUsd(response.headers.get('x-credit-charged'));
    const receipt = {
      // A repeated job request reports only its own charge, which is 0.
      ...receiptOf(paid, boundedCharge(isRetry && charged === 0n ? null : charged, pending)),
      balanceMicroUsd: readMicroUsd(response.headers.get('x-credit-balance')),
    };
    const body = data as unknown as ReadableStream<Uint8Array>;
    if (response.status !== 202) return speechOf(response, failAsLost(body, paid), { ...receipt, identifier: null });
    purchase.isRetry = true;
    const { jobId, traceId } = (await new Response(body).json()) as TtsJob;
    return this.#followJob(jobId, { ...receipt, isReplay: isRetry && traceId !== receipt.traceId }, paid);
  }

  async #followJob(jobId: string, receipt: Receipt, { pending, service, signal }: CardResponse): Promise<Speech> {
    const params = { path: { jobId } };
    for (;;) {
      const job = await readData(signal, (signal) => service.api.GET('/tts/jobs/{jobId}', { params, signal }));
      if (job.status === 'failed') throw jobFailed(job);
      if (job.status !== 'completed') {
        await pause(POLL_MS, signal);
        continue;
      }
      // Of this service, whatever host the link names.
      const { pathname, search } = new URL(String(job.links.audio));
      const path = (pathname + search) as '/tts/jobs/{jobId}/audio';
      const { response, data, error } = await service.api.GET(path, { params, parseAs: 'stream', signal });
      if (response.ok) {
        const { body } = new Response(await new Response(data as unknown as ReadableStream).arrayBuffer());
        return speechOf(response, body as ReadableStream<Uint8Array>, receipt);
      }
      if (response.status !== 404 && response.status !== 410) throw serviceError(faultOf(response, error));
      throw audioLostOutcome(pending, receipt.chargedMicroUsd).error;
    }
  }
}

/** The service has already retried it. */
const jobFailed = ({ error, traceId }: TtsJob): ServiceError =>
  serviceError({
    status: 502,
    code: error?.code ?? 'UNKNOWN',
    message: error?.message ?? 'The job failed. Retry later. You were not charged.',
    details: { transient: false, payment: { state: 'not_charged' } },
    traceId,
    retryAfterSeconds: null,
  });

function speechOf(response: Response, audio: ReadableStream<Uint8Array>, receipt: Receipt): Speech {
  const contentType = response.headers.get('content-type') as Speech['contentType'];
  if (!contentType?.startsWith('audio/')) throw new TypeError(`The response is ${contentType}, not audio.`);
  const bytes = async () => new Uint8Array(await new Response(audio).arrayBuffer());
  return { audio, bytes, contentType, receipt };
}

const walletsOnly = (): SpeechgateError =>
  new SpeechgateError('This client pays only by card credit. For wallets, import Speechgate from `/x402`.');
