import { serviceWords } from '../lib/service-words.ts';
import {
  type Fault,
  InvalidRequestError,
  PaymentRequiredError,
  PriceChangedError,
  RateLimitedError,
  type ServiceError,
  ServiceUnavailableError,
} from './errors.ts';

/** What an error's answer tells. An answer that isn't the service's own, such as a proxy's, has the code `UNKNOWN`. */
export function faultOf(response: Response, body: unknown): Fault {
  const { error } = (body ?? {}) as { error?: { code?: unknown; message?: unknown; details?: unknown } };
  const { code, message, details } = error ?? {};
  const seconds = response.headers.get('retry-after');
  return {
    status: response.status,
    code: codeOf(code),
    message:
      typeof message === 'string' ? serviceWords(message) : `The service answered with status ${response.status}.`,
    details: typeof details === 'object' && details !== null ? (details as Record<string, unknown>) : null,
    traceId: traceIdOf(response),
    retryAfterSeconds: seconds !== null && /^\d{1,6}$/.test(seconds) ? Number(seconds) : null,
  };
}

/** An error's code; `UNKNOWN` where it is none. */
export const codeOf = (code: unknown): string =>
  typeof code === 'string' && /^[A-Z0-9_]{1,64}$/.test(code) ? code : 'UNKNOWN';

/** By which the operator finds the request; empty where the answer has none. */
export function traceIdOf({ headers }: Response): string {
  const traceId = headers.get('x-trace-id') ?? '';
  return /^[\w-]{1,64}$/.test(traceId) ? traceId : '';
}

/** The error of that answer. @param topUpUrl where card credit is bought, in that flow */
export function serviceError(fault: Fault, topUpUrl: string | null = null): ServiceError {
  if (fault.details?.reason === 'over_max_amount') return new PriceChangedError(fault);
  if (fault.status === 402) return new PaymentRequiredError(fault, { topUpUrl, missingMicroUsd: missingOf(fault) });
  if (fault.status === 429) return new RateLimitedError(fault);
  return fault.status >= 500 ? new ServiceUnavailableError(fault) : new InvalidRequestError(fault);
}

function missingOf({ details }: Fault): bigint | null {
  const { priceMicroUsd: price, balanceMicroUsd: balance } = details ?? {};
  if (!Number.isSafeInteger(price) || !Number.isSafeInteger(balance)) return null;
  const missing = BigInt(price as number) - BigInt(balance as number);
  return missing > 0n ? missing : null;
}

/** Statuses of a service that could not just now. */
const PASSING: ReadonlySet<number> = new Set([408, 429, 502, 503]);
/** What the operator has to set up. */
const LASTING: ReadonlySet<string> = new Set(['CONFIG_ERROR', 'TTS_PROVIDER_NOT_CONFIGURED']);

/** Whether asking again, after a while, may be answered otherwise. */
export const isPassing = (fault: Pick<Fault, 'status' | 'code' | 'details'>): boolean =>
  isDatabaseUnavailable(fault) ||
  (PASSING.has(fault.status) && !LASTING.has(fault.code) && fault.details?.transient !== false);

export const isDatabaseUnavailable = ({ details }: Pick<Fault, 'details'>): boolean =>
  details?.reason === 'database_unavailable';

/** As the service refuses a model that it does not have. */
export const unknownModel = (model: string): ServiceError =>
  serviceError({
    status: 400,
    code: 'UNKNOWN_TTS_MODEL',
    message: `The service has no model ${model}.`,
    details: { field: 'model' },
    traceId: '',
    retryAfterSeconds: null,
  });
