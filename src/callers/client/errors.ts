import { formatUsd } from '../../lib/money.ts';
import { serviceWords } from '../../lib/service-words.ts';
import type { UsedCap } from './money-text.ts';
import type { PendingPurchase } from './pending-purchase.ts';

/**
 * The base class of all errors that the client throws on purpose. Members that constructors set are only declared, which
 * keeps a page small.
 */
export class SpeechgateError extends Error {
  override readonly name: string = 'SpeechgateError';

  /** The message may quote the service, so it is reduced to one printable line. */
  constructor(message: string, options?: ErrorOptions) {
    super(serviceWords(message), options);
  }
}

export type Fault = Pick<ServiceError, 'status' | 'code' | 'message' | 'details' | 'traceId' | 'retryAfterSeconds'>;

/** The state of a payment as the service reports it (R64). */
export interface PaymentReport {
  readonly state: 'not_charged' | 'charged' | 'unknown';
  /** The charged or possibly charged amount; null when the service does not know it. */
  readonly amountMicroUsd: bigint | null;
  readonly transaction: string | null;
}

const STATES: readonly unknown[] = ['not_charged', 'charged', 'unknown'] satisfies PaymentReport['state'][];

/** Null when the service failed before it looked up the payment. */
function paymentReport(details: Readonly<Record<string, unknown>> | null): PaymentReport | null {
  const { state, amountMicroUsd, transaction } = (details?.payment ?? {}) as Record<string, unknown>;
  if (!STATES.includes(state)) return null;
  return {
    state: state as PaymentReport['state'],
    amountMicroUsd: Number.isSafeInteger(amountMicroUsd) ? BigInt(amountMicroUsd as number) : null,
    transaction: typeof transaction === 'string' && /^0x[0-9a-f]{64}$/i.test(transaction) ? transaction : null,
  };
}

/** The service refused and charged nothing. A direct payment stays reserved: it can be settled until it expires. */
export class ServiceError extends SpeechgateError {
  override readonly name: string = 'ServiceError';
  declare readonly status: number;
  declare readonly code: string;
  declare readonly details: Readonly<Record<string, unknown>> | null;
  declare readonly traceId: string;
  declare readonly retryAfterSeconds: number | null;
  /** The payment's state as the service reports it; null when it did not look up the payment. */
  declare readonly payment: PaymentReport | null;

  constructor(fault: Fault, message = fault.message) {
    super(message);
    this.status = fault.status;
    this.code = fault.code;
    this.details = fault.details;
    this.traceId = fault.traceId;
    this.retryAfterSeconds = fault.retryAfterSeconds;
    this.payment = paymentReport(fault.details);
  }
}

export class InvalidRequestError extends ServiceError {
  override readonly name = 'InvalidRequestError';
}

/** The wallet whose USDC would have paid, as the signed payment names it. */
export interface PayingWallet {
  readonly address: string;
  readonly network: string;
  readonly amountMicroUsd: bigint;
}

export class PaymentRequiredError extends ServiceError {
  override readonly name: string = 'PaymentRequiredError';
  /** The page that sells card credit; null in the other flows. Not enumerable, because it may contain the account id. */
  declare readonly topUpUrl: string | null;
  /** Null unless the service reports price and balance. */
  declare readonly missingMicroUsd: bigint | null;
  /** Null unless USDC of a wallet was to pay on the chain. */
  declare readonly wallet: PayingWallet | null;

  constructor(
    fault: Fault,
    way: Pick<PaymentRequiredError, 'topUpUrl' | 'missingMicroUsd'> & { readonly wallet?: PayingWallet | null },
  ) {
    super(fault);
    Object.defineProperty(this, 'topUpUrl', { value: way.topUpUrl });
    this.missingMicroUsd = way.missingMicroUsd;
    this.wallet = way.wallet ?? null;
  }
}

/** The price is above the maximum of the purchase. Nothing was charged. */
export class PriceChangedError extends ServiceError {
  override readonly name = 'PriceChangedError';

  constructor(fault: Fault) {
    const { priceMicroUsd } = fault.details ?? {};
    const price = Number.isSafeInteger(priceMicroUsd) ? ` to ${formatUsd(BigInt(priceMicroUsd as number))} USD` : '';
    super(
      fault,
      `The price has risen${price}, above the maximum of this purchase. Retry to buy at the new price. Nothing was charged.`,
    );
  }
}

export class RateLimitedError extends ServiceError {
  override readonly name = 'RateLimitedError';
}

export class ServiceUnavailableError extends ServiceError {
  override readonly name = 'ServiceUnavailableError';
}

/** The service is unavailable, and no payment was sent. */
export class UnreachableError extends SpeechgateError {
  override readonly name = 'UnreachableError';
}

export class TooLargeError extends SpeechgateError {
  override readonly name = 'TooLargeError';
}

const CAP_LIMITS = {
  call: 'the least of maxMicroUsd, maxPerRequestMicroUsd and perCallMicroUsd',
  client: 'maxTotalMicroUsd',
  day: 'perDayMicroUsd',
  total: 'totalMicroUsd',
  unconfirmed: 'the daily or total cap',
} as const;

/** The maximum price exceeds a cap. Nothing was signed. */
export class OverCapError extends SpeechgateError {
  override readonly name: string = 'OverCapError';
  /** `unconfirmed` caps the signed amounts that only the service reports as not charged. */
  declare readonly scope: 'call' | 'client' | 'day' | 'total' | 'unconfirmed';
  declare readonly limitMicroUsd: bigint;
  declare readonly leftMicroUsd: bigint;
  declare readonly wantedMicroUsd: bigint;
  /** The amounts that count toward the cap. */
  declare readonly used: UsedCap;

  /** @param usedWords follow what is left of the cap */
  constructor(cap: Omit<OverCapError, keyof Error | 'used'> & { readonly used?: UsedCap }, usedWords = '') {
    const { scope, limitMicroUsd, leftMicroUsd, wantedMicroUsd, used = {} } = cap;
    super(
      `This speech may cost ${wantedMicroUsd} micro-USD, but only ${leftMicroUsd} of the cap of ${limitMicroUsd} is left` +
        `${usedWords}. Raise ${CAP_LIMITS[scope]} or shorten the text. You were not charged.`,
    );
    this.scope = scope;
    this.limitMicroUsd = limitMicroUsd;
    this.leftMicroUsd = leftMicroUsd;
    this.wantedMicroUsd = wantedMicroUsd;
    this.used = used;
  }
}

/** Metadata or challenge do not match the pinned keys. Nothing was signed. */
export class UntrustedError extends SpeechgateError {
  override readonly name: string = 'UntrustedError';
  /** Such as wrong_key, expired, wrong_payee. */
  declare readonly reason: string;

  constructor(reason: string, message: string) {
    super(message);
    this.reason = reason;
  }
}

/** The purchase may have been charged. Don't pay again: pass `pending` to `resume`, in any process. */
export class OutcomeUnknownError extends SpeechgateError {
  override readonly name: string = 'OutcomeUnknownError';
  /** Not enumerable, because it contains the text and the payment. */
  declare readonly pending: PendingPurchase;

  constructor(pending: PendingPurchase, options?: ErrorOptions) {
    super(
      `The outcome of the purchase ${pending.identifier} is unknown. Resume it and do not pay again. You may have been charged.`,
      options,
    );
    Object.defineProperty(this, 'pending', { value: pending });
  }
}

/** Charged or possibly charged, and the audio is gone. Speaking the text again is a new purchase. */
export class AudioLostError extends SpeechgateError {
  override readonly name: string = 'AudioLostError';
  /** Null when the charge is unknown. */
  declare readonly chargedMicroUsd: bigint | null;
  declare readonly maxMicroUsd: bigint;

  constructor(message: string, money: Omit<AudioLostError, keyof Error>, options?: ErrorOptions) {
    super(message, options);
    this.chargedMicroUsd = money.chargedMicroUsd;
    this.maxMicroUsd = money.maxMicroUsd;
  }
}
