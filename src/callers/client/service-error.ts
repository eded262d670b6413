import { serviceWords } from '../../lib/service-words.ts';
import {
  type Fault,
  InvalidRequestError,
  type PayingWallet,
  PaymentRequiredError,
  PriceChangedError,
  RateLimitedError,
  type ServiceError,
  ServiceUnavailableError,
} from './errors.ts';

/** Parses an error response. A response that is not the service's own, such as a proxy's, gets the code `UNKNOWN`. */
export function faultOf(response: Response, body: unknown): Fault {
  const { error } = (body ?? {}) as { error?: { code?: unknown; message?: unknown; details?: unknown } };
  const { code, message, details } = error ?? {};
  const seconds = response.headers.get('retry-after');
  const words = typeof message === 'string' ? serviceWords(message) : `The service returned status ${response.status}.`;
  const isOfClock = (details as { field?: unknown } | null | undefined)?.field === EXPIRY;
  return {
    status: response.status,
    code: codeOf(code),
    message: isOfClock ? `${words} ${clockWords(response)}` : words,
    details: typeof details === 'object' && details !== null ? (details as Record<string, unknown>) : null,
    traceId: traceIdOf(response),
    retryAfterSeconds: seconds !== null && /^\d{1,6}$/.test(seconds) ? Number(seconds) : null,
  };
}

/** The expiry that a client signs is wrong only if its clock is. */
const EXPIRY = 'x-x402-expiry';

function clockWords({ headers }: Response): string {
  const aheadSeconds = Math.round((Date.now() - Date.parse(headers.get('date') ?? '')) / 1000);
  if (Number.isNaN(aheadSeconds)) return 'Check the clock of this machine.';
  const direction = aheadSeconds < 0 ? 'behind' : 'ahead of';
  return `The clock of this machine is ${Math.abs(aheadSeconds)} s ${direction} the service's: correct it.`;
}

export const codeOf = (code: unknown): string =>
  typeof code === 'string' && /^[A-Z0-9_]{1,64}$/.test(code) ? code : 'UNKNOWN';

export function traceIdOf({ headers }: Response): string {
  const traceId = headers.get('x-trace-id') ?? '';
  return /^[\w-]{1,64}$/.test(traceId) ? traceId : '';
}

export function serviceError(
  fault: Fault,
  topUpUrl: string | null = null,
  wallet: PayingWallet | null = null,
): ServiceError {
  if (fault.details?.reason === 'over_max_amount') return new PriceChangedError(fault);
  if (fault.status === 402)
    return new PaymentRequiredError(fault, { topUpUrl, missingMicroUsd: missingOf(fault), wallet });
  if (fault.status === 429) return new RateLimitedError(fault);
  return fault.status >= 500 ? new ServiceUnavailableError(fault) : new InvalidRequestError(fault);
}

function missingOf({ details }: Fault): bigint | null {
  const { priceMicroUsd: price, balanceMicroUsd: balance } = details ?? {};
  if (!Number.isSafeInteger(price) || !Number.isSafeInteger(balance)) return null;
  const missing = BigInt(price as number) - BigInt(balance as number);
  return missing > 0n ? missing : null;
}

const TRANSIENT_STATUSES: ReadonlySet<number> = new Set([408, 429, 502, 503]);
const PERMANENT_CODES: ReadonlySet<string> = new Set(['CONFIG_ERROR', 'TTS_PROVIDER_NOT_CONFIGURED']);

export const isTransient = (fault: Pick<Fault, 'status' | 'code' | 'details'>): boolean =>
  isDatabaseUnavailable(fault) ||
  (TRANSIENT_STATUSES.has(fault.status) && !PERMANENT_CODES.has(fault.code) && fault.details?.transient !== false);

export const isDatabaseUnavailable = ({ details }: Pick<Fault, 'details'>): boolean =>
  details?.reason === 'database_unavailable';

export const unknownModel = (model: string): ServiceError =>
  serviceError({
    status: 400,
    code: 'UNKNOWN_TTS_MODEL',
    message: `model ${model} does not exist. Choose one from the catalog. You were not charged.`,
    details: { field: 'model' },
    traceId: '',
    retryAfterSeconds: null,
  });
