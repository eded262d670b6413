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
import type { Flow } from '../client/pending-purchase.ts';
import { isPassing } from '../client/service-error.ts';
import { formatUsd } from '../lib/money.ts';
import { serviceId, serviceWords } from '../lib/service-words.ts';
import { ApiError, invalid, NO_RETRY } from './api-error.ts';

/** OpenAI's names of the fields that the service names in what it refuses. */
const PARAMS: Readonly<Record<string, string>> = { text: 'input', model: 'model', voice: 'voice', speed: 'speed' };
/** Seconds until it is worth asking again, where nobody told. */
const RETRY_AFTER_SECONDS = 5;

/**
 * What a program is told when its speech could not be bought. Whatever would spend money again, or can't succeed before
 * somebody acts, is not to be retried by itself; what cost nothing and passes by is.
 */
export function toApiError(error: unknown, flow: Flow): ApiError {
  if (error instanceof ApiError) return error;
  if (error instanceof PaymentRequiredError) return noMoney(error, flow);
  if (error instanceof OverCapError) return overCap(error);
  if (error instanceof OutcomeUnknownError) return outcomeUnknown(error);
  if (error instanceof RateLimitedError) {
    return new ApiError(
      { status: 429, type: 'rate_limit_error', code: 'rate_limit_exceeded' },
      `Too many requests. ${words(error)}`,
      later(error),
    );
  }
  if (error instanceof PriceChangedError) {
    return new ApiError({ status: 503, type: 'server_error', code: 'price_changed' }, error.message, later(error));
  }
  if (error instanceof ServiceError) return isPassing(error) ? unavailable(error) : refused(error);
  if (error instanceof UnreachableError) {
    return new ApiError({ status: 503, type: 'server_error', code: 'unreachable' }, error.message, later());
  }
  if (error instanceof UntrustedError) {
    return new ApiError(
      { status: 502, type: 'server_error', code: error.reason },
      `Nothing was paid, since the service can't be trusted: ${serviceWords(error.message)}`,
      NO_RETRY,
    );
  }
  if (error instanceof AudioLostError) {
    return new ApiError({ status: 502, type: 'server_error', code: 'audio_lost' }, error.message, NO_RETRY);
  }
  const { message } = error as Error;
  return new ApiError({ status: 500, type: 'server_error', code: 'bridge_failed' }, serviceWords(message), NO_RETRY);
}

function noMoney(error: PaymentRequiredError, flow: Flow): ApiError {
  const missing = error.missingMicroUsd === null ? '' : ` $${formatUsd(error.missingMicroUsd)} are missing.`;
  const way = {
    // Not at `topUpUrl`: it names the account, which is a bearer secret that programs don't get.
    card: 'Run: speechgate top-up',
    prepaid: 'Deposit more with speechgate deposit.',
    direct: 'Send USDC to the address of your wallet.',
  }[flow];
  return quota('insufficient_quota', `There is not enough money to pay for this.${missing} ${way}`);
}

function overCap({ scope, wantedMicroUsd, leftMicroUsd, limitMicroUsd }: OverCapError): ApiError {
  const of = {
    call: 'a call',
    client: 'this bridge',
    day: 'today',
    total: 'all',
    unconfirmed: 'what was signed and, by the word of the service alone, not charged',
  }[scope];
  return quota(
    'over_cap',
    `Nothing was paid: this may cost $${formatUsd(wantedMicroUsd)}, and $${formatUsd(leftMicroUsd)} are left of the ` +
      `$${formatUsd(limitMicroUsd)} that ${of} may cost. Raise the cap, or wait.`,
  );
}

/** As OpenAI answers when an account has used up what it may spend. */
const quota = (code: string, message: string): ApiError =>
  new ApiError({ status: 429, type: 'insufficient_quota', code }, message, NO_RETRY);

const outcomeUnknown = ({ pending }: OutcomeUnknownError): ApiError =>
  new ApiError(
    { status: 409, type: 'server_error', code: 'outcome_unknown' },
    `Whether ${pending.identifier} was charged is not known yet. Ask for the same again in a minute: the bridge then ` +
      'goes on with that purchase instead of paying anew.',
    NO_RETRY,
  );

const unavailable = (error: ServiceError): ApiError =>
  new ApiError({ status: 503, type: 'server_error', code: serviceId(error.code) }, words(error), later(error));

/** The same request would be refused again. */
function refused(error: ServiceError): ApiError {
  const { field } = error.details ?? {};
  const param = typeof field === 'string' ? (PARAMS[field] ?? null) : null;
  const code = serviceId(error.code);
  if (error.status === 400) return invalid(param, words(error), code);
  return new ApiError({ status: 502, type: 'server_error', code }, `The service refused. ${words(error)}`, NO_RETRY);
}

const words = ({ message }: ServiceError): string => `The service says: ${serviceWords(message)}`;

const later = (error?: ServiceError): Record<string, string> => ({
  'retry-after': String(error?.retryAfterSeconds ?? RETRY_AFTER_SECONDS),
});
