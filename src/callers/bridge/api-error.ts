import { serviceId, serviceSays, serviceWords } from '../../lib/service-words.ts';
import {
  AudioLostError,
  OutcomeUnknownError,
  OverCapError,
  PaymentRequiredError,
  PriceChangedError,
  RateLimitedError,
  ServiceError,
  UnreachableError,
  UntrustedError,
} from '../client/index.ts';
import { CAP_OPTIONS, lackOfMoney, overCapText } from '../client/money-text.ts';
import { isTransient } from '../client/service-error.ts';

interface Kind {
  readonly status: number;
  readonly type:
    | 'invalid_request_error'
    | 'authentication_error'
    | 'permission_error'
    | 'insufficient_quota'
    | 'rate_limit_error'
    | 'server_error';
  readonly code?: string | null;
  readonly param?: string | null;
}

type Headers = Readonly<Record<string, string>>;

export class ApiError extends Error {
  readonly status: number;
  readonly type: Kind['type'];
  readonly code: string | null;
  readonly param: string | null;
  readonly headers: Headers;

  constructor({ status, type, code = null, param = null }: Kind, message: string, headers: Headers = {}) {
    super(message);
    this.status = status;
    this.type = type;
    this.code = code;
    this.param = param;
    this.headers = headers;
  }

  get body(): object {
    const { message, type, param, code } = this;
    return { error: { message, type, param, code } };
  }
}

export const invalid = (param: string | null, message: string, code = 'invalid_value', status = 400): ApiError =>
  new ApiError({ status, type: 'invalid_request_error', code, param }, message);

/** Stops the automatic retries of OpenAI's clients. Other clients repeat each 408, 409, 429 and 5xx. */
export const NO_RETRY = { 'x-should-retry': 'false' };

/** No client repeats a 422 by itself: a retry would fail again, or pay again. */
export const lasting = (code: string, message: string, headers: Headers = {}, param: string | null = null): ApiError =>
  new ApiError({ status: 422, type: 'server_error', code, param }, message, { ...headers, ...NO_RETRY });

const PARAMS: Readonly<Record<string, string>> = { text: 'input', model: 'model', voice: 'voice', speed: 'speed' };
const RETRY_AFTER_SECONDS = 5;
/** Some clients sleep as long as they are told, even past their own timeout. */
const MAX_RETRY_AFTER_SECONDS = 30;

/**
 * Adds `NO_RETRY` if a retry would pay again, or fails until somebody acts.
 * @param isStreamed whether the bridge streams what it buys by card, of which no copy is kept
 */
export function toApiError(error: unknown, isStreamed: boolean): ApiError {
  if (error instanceof ApiError) return error;
  const lack = error instanceof PaymentRequiredError && lackOfMoney(error);
  if (lack) return quota('insufficient_quota', `${lack.problem} ${lack.remedy}. You were not charged.`);
  if (error instanceof OverCapError) return overCap(error);
  if (error instanceof OutcomeUnknownError) {
    return new ApiError(
      { status: 409, type: 'server_error', code: 'outcome_unknown' },
      `The outcome of the purchase ${error.pending.identifier} is unknown. Retry the same request in a minute: the bridge ` +
        'resumes this purchase and does not pay again. You may have been charged.',
      NO_RETRY,
    );
  }
  if (error instanceof RateLimitedError) {
    return new ApiError(
      { status: 429, type: 'rate_limit_error', code: 'rate_limit_exceeded' },
      `Too many requests. Retry in ${secondsOf(error)} s. ${notCharged(error)}`,
      retryAfter(error),
    );
  }
  if (error instanceof PriceChangedError) {
    const text = 'The price of the speech has risen. Retry to buy at the new price. You were not charged.';
    return passing('price_changed', text, retryAfter(error));
  }
  if (error instanceof ServiceError) return refused(error);
  const { message } = error as Error;
  if (error instanceof UnreachableError) {
    const text =
      'The service is unavailable. Retry later, or check its URL with speechgate connect. You were not charged.';
    return passing('unreachable', text, retryAfter());
  }
  if (error instanceof UntrustedError) {
    return lasting(error.reason, `The bridge does not trust the response of the service: ${serviceWords(message)}`);
  }
  if (error instanceof AudioLostError) {
    if (error.chargedMicroUsd !== 0n) return lasting('audio_lost', audioLost(isStreamed));
    return passing('audio_lost', 'The audio ended early. Send the request again. You were not charged.', retryAfter());
  }
  return lasting('bridge_failed', serviceWords(message));
}

const passing = (code: string, message: string, headers: Headers): ApiError =>
  new ApiError({ status: 503, type: 'server_error', code }, message, headers);

function audioLost(isStreamed: boolean): string {
  const way = isStreamed ? ' Start the bridge without --no-durable: lost audio can then be fetched again.' : '';
  return `The audio of this request is lost. For ten minutes the bridge refuses the same request; after that, the same request is a new purchase, charged again.${way}`;
}

function overCap(error: OverCapError): ApiError {
  const way = `Raise the cap with ${CAP_OPTIONS[error.scope]} of speechgate bridge or connect, or shorten the text.`;
  return quota('over_cap', `${overCapText(error)} ${way} You were not charged.`);
}

const quota = (code: string, message: string): ApiError =>
  new ApiError({ status: 429, type: 'insufficient_quota', code }, message, NO_RETRY);

function refused(error: ServiceError): ApiError {
  const code = serviceId(error.code);
  if (isTransient(error)) return passing(code, notCharged(error), retryAfter(error));
  const { field } = error.details ?? {};
  const param = typeof field === 'string' ? (PARAMS[field] ?? null) : null;
  if (error.status === 400) return invalid(param, notCharged(error), code);
  return lasting(code, `The service refused the request. ${notCharged(error)}`);
}

const notCharged = ({ message }: ServiceError): string => `You were not charged. ${serviceSays(message)}`;

const secondsOf = (error?: ServiceError): number => error?.retryAfterSeconds ?? RETRY_AFTER_SECONDS;

function retryAfter(error?: ServiceError): Headers {
  const seconds = secondsOf(error);
  const headers = { 'retry-after': String(Math.min(seconds, MAX_RETRY_AFTER_SECONDS)) };
  return seconds > MAX_RETRY_AFTER_SECONDS ? { ...headers, ...NO_RETRY } : headers;
}
