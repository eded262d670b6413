import { serviceWords } from '../../lib/service-words.ts';
import { decodeJson } from './digest.ts';
import {
  AudioLostError,
  type Fault,
  InvalidRequestError,
  type PayingWallet,
  type PaymentReport,
  PaymentRequiredError,
  PriceChangedError,
  RateLimitedError,
  type ServiceError,
  ServiceUnavailableError,
} from './errors.ts';
import { boundedCharge, isRepeatable, mayNonceBeDeleted, type PendingPurchase } from './pending-purchase.ts';
import type { Outcome, PaidResponse } from './retry-until-resolved.ts';

/** Parses an error response. A response that is not the service's own, such as a proxy's, gets the code `UNKNOWN`. */
export function faultOf(response: Response, body: unknown): Fault {
  const { error } = (body ?? {}) as { error?: { code?: unknown; message?: unknown; details?: unknown } };
  const { code, message, details } = error ?? {};
  const seconds = response.headers.get('retry-after');
  return {
    status: response.status,
    code: codeOf(code),
    message:
      typeof message === 'string'
        ? serviceWords(message)
        : `The service returned status ${response.status}. Retry later.`,
    details: typeof details === 'object' && details !== null ? (details as Record<string, unknown>) : null,
    traceId: traceIdOf(response),
    retryAfterSeconds: seconds !== null && /^\d{1,6}$/.test(seconds) ? Number(seconds) : null,
  };
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

const isDatabaseUnavailable = ({ details }: Pick<Fault, 'details'>): boolean =>
  details?.reason === 'database_unavailable';

export const unknownModel = (model: string): ServiceError =>
  serviceError({
    status: 400,
    code: 'UNKNOWN_TTS_MODEL',
    message: `model ${model} does not exist. Choose one of GET /tts/models. You were not charged.`,
    details: { field: 'model' },
    traceId: '',
    retryAfterSeconds: null,
  });

/** An error without a payment report says nothing about an earlier request with the same payment (R64). */
export function readRefusal(paid: PaidResponse, topUpUrl: string | null = null): Outcome<never> {
  const { pending } = paid;
  const error = serviceError(faultOf(paid.response, paid.errorBody), topUpUrl, walletOf(pending));
  const { retryAfterSeconds } = error;
  switch (paymentStateOf(error, paid)) {
    case 'not_charged': {
      const retry = retryKindOf(error, pending);
      return { outcome: 'refused', error, retryAfterSeconds, ...(retry && { retry }) };
    }
    case 'charged':
      return canStillComplete(error, pending)
        ? { outcome: 'unknown', cause: error, retryAfterSeconds }
        : audioLostOutcome(pending, error.payment?.amountMicroUsd ?? null);
    case 'unknown':
      return { outcome: 'unknown', cause: error, retryAfterSeconds };
  }
}

interface SignedPayment {
  readonly accepted?: { readonly network: string };
  readonly payload?: { readonly authorization?: { readonly from?: string } };
}

function walletOf({ headers, maxMicroUsd }: PendingPurchase): PayingWallet | null {
  const signed = headers['payment-signature'];
  if (signed === undefined) return null;
  const { accepted, payload } = decodeJson<SignedPayment>(signed);
  const from = payload?.authorization?.from;
  if (!accepted || from === undefined) return null;
  return { address: from, network: accepted.network, amountMicroUsd: BigInt(maxMicroUsd) };
}

export function paymentStateOf(
  error: ServiceError,
  { pending, isRetry }: Pick<PaidResponse, 'pending' | 'isRetry'>,
): PaymentReport['state'] {
  const { payment } = error;
  if (payment) return payment.state === 'not_charged' && mayNonceBeDeleted(pending) ? 'unknown' : payment.state;
  return isRetry || mayBeAfterCharge(error) ? 'unknown' : 'not_charged';
}

/** A response without a report may come after the charge, or from a proxy that forwarded the request. */
const mayBeAfterCharge = (error: ServiceError): boolean =>
  error.status === 409 ||
  error.status === 500 ||
  isDatabaseUnavailable(error) ||
  (error.status > 500 && error.code === 'UNKNOWN');

const canStillComplete = ({ status, retryAfterSeconds }: ServiceError, pending: PendingPurchase): boolean =>
  pending.kind === 'deposit' ||
  (isRepeatable(pending) && (status >= 500 || status === 429 || status === 408 || retryAfterSeconds !== null));

function retryKindOf(error: ServiceError, pending: PendingPurchase) {
  const { flow } = pending;
  const { status, code, details } = error;
  const isOutdatedOffer = details?.error === 'accepted_is_no_offer' || (flow === 'prepaid' && status === 401);
  if (error instanceof PriceChangedError || isOutdatedOffer || code === 'UNKNOWN_TTS_MODEL') return 'terms';
  // The nonce is spent, and its charge was refunded.
  if (code === 'PREPAID_NONCE_REPLAYED') return 'new';
  if (!isTransient(error)) return undefined;
  // After a failed synthesis the nonce is spent (R33).
  const canRepeat = flow === 'prepaid' ? status < 500 : isRepeatable(pending);
  return canRepeat ? 'same' : 'new';
}

export function audioLostOutcome(pending: PendingPurchase, reportedMicroUsd: bigint | null) {
  const money = { chargedMicroUsd: boundedCharge(reportedMicroUsd, pending), maxMicroUsd: BigInt(pending.maxMicroUsd) };
  const error = new AudioLostError(
    `The audio of the purchase ${pending.identifier} has expired. Buy it again if you need it. You were charged.`,
    money,
  );
  return { outcome: 'lost' as const, error, chargedMicroUsd: money.chargedMicroUsd };
}
