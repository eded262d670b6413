import { formatUsd } from '../../lib/money.ts';
import { serviceId, serviceWords } from '../../lib/service-words.ts';
import {
  AudioLostError,
  type Flow,
  OutcomeUnknownError,
  OverCapError,
  PaymentRequiredError,
  PriceChangedError,
  RateLimitedError,
  ServiceError,
  UnreachableError,
  UntrustedError,
} from '../client/index.ts';
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

export const invalid = (param: string | null, message: string, code = 'invalid_value'): ApiError =>
  new ApiError({ status: 400, type: 'invalid_request_error', code, param }, message);

/** Stops the automatic retries of OpenAI's clients after a 409, 429 or 5xx. */
export const NO_RETRY = { 'x-should-retry': 'false' };

const PARAMS: Readonly<Record<string, string>> = { text: 'input', model: 'model', voice: 'voice', speed: 'speed' };
const RETRY_AFTER_SECONDS = 5;

/** Adds `NO_RETRY` if a retry would pay again, or fails until somebody acts. */
export function toApiError(error: unknown, flow: Flow): ApiError {
  if (error instanceof ApiError) return error;
  if (error instanceof PaymentRequiredError) return noMoney(error, flow);
  if (error instanceof OverCapError) return overCap(error);
  if (error instanceof OutcomeUnknownError) {
    return new ApiError(
      { status: 409, type: 'server_error', code: 'outcome_unknown' },
      `The outcome of ${error.pending.identifier} is unknown. Retry the same request in a minute: the bridge resumes this ` +
        'purchase instead of paying again. You may have been charged.',
      NO_RETRY,
    );
  }
  if (error instanceof RateLimitedError) {
    return new ApiError(
      { status: 429, type: 'rate_limit_error', code: 'rate_limit_exceeded' },
      `Too many requests. Retry after the time in retry-after. ${notCharged(error)}`,
      retryAfter(error),
    );
  }
  if (error instanceof PriceChangedError) return serverError(503, 'price_changed', error.message, retryAfter(error));
  if (error instanceof ServiceError) return refused(error);
  const { message } = error as Error;
  if (error instanceof UnreachableError) return serverError(503, 'unreachable', message, retryAfter());
  if (error instanceof UntrustedError) {
    const text = `The response of the service cannot be trusted: ${serviceWords(message)} You were not charged.`;
    return serverError(502, error.reason, text, NO_RETRY);
  }
  if (error instanceof AudioLostError) {
    const charge = error.chargedMicroUsd === 0n ? ' You were not charged.' : '';
    const text = `The audio was lost. Request the text again as a new purchase.${charge}`;
    return serverError(502, 'audio_lost', text, NO_RETRY);
  }
  return serverError(500, 'bridge_failed', serviceWords(message), NO_RETRY);
}

const serverError = (status: number, code: string, message: string, headers: Headers): ApiError =>
  new ApiError({ status, type: 'server_error', code }, message, headers);

function noMoney(error: PaymentRequiredError, flow: Flow): ApiError {
  const missing = error.missingMicroUsd === null ? '.' : `: $${formatUsd(error.missingMicroUsd)} is missing.`;
  const way = {
    // Without `topUpUrl`, which contains the account's bearer id.
    card: 'Run: speechgate top-up',
    prepaid: 'Run: speechgate deposit 1',
    direct: 'Send USDC to your wallet',
  }[flow];
  return quota('insufficient_quota', `Insufficient funds${missing} ${way}. You were not charged.`);
}

function overCap({ scope, wantedMicroUsd, leftMicroUsd, limitMicroUsd }: OverCapError): ApiError {
  const scopeText = {
    call: 'one call',
    client: 'this bridge',
    day: 'today',
    total: 'all purchases',
    unconfirmed: 'unconfirmed signatures',
  }[scope];
  return quota(
    'over_cap',
    `This may cost $${formatUsd(wantedMicroUsd)}, but $${formatUsd(leftMicroUsd)} of the cap of ` +
      `$${formatUsd(limitMicroUsd)} for ${scopeText} is left. Raise the cap or shorten the text. You were not charged.`,
  );
}

const quota = (code: string, message: string): ApiError =>
  new ApiError({ status: 429, type: 'insufficient_quota', code }, message, NO_RETRY);

function refused(error: ServiceError): ApiError {
  const code = serviceId(error.code);
  if (isTransient(error)) return serverError(503, code, notCharged(error), retryAfter(error));
  const { field } = error.details ?? {};
  const param = typeof field === 'string' ? (PARAMS[field] ?? null) : null;
  if (error.status === 400) return invalid(param, notCharged(error), code);
  return serverError(502, code, `The service refused the request. ${notCharged(error)}`, NO_RETRY);
}

/** The service's text is last, so that nothing of it looks like the bridge's own. */
const notCharged = ({ message }: ServiceError): string =>
  `You were not charged. The service says: ${serviceWords(message)}`;

const retryAfter = (error?: ServiceError): Headers => ({
  'retry-after': String(error?.retryAfterSeconds ?? RETRY_AFTER_SECONDS),
});
