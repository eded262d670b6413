import { serviceWords } from '../lib/service-words.ts';
import { type PaymentReport, paymentReport } from './payment-report.ts';
import type { PendingPurchase } from './pending-purchase.ts';

/** Everything that the client throws on purpose is one of these. */
export class SpeechgateError extends Error {
  override readonly name: string = 'SpeechgateError';

  /** @param message one line of printable characters at most: it may quote what a service says */
  constructor(message: string, options?: ErrorOptions) {
    super(serviceWords(message), options);
  }
}

/** What an answer of the service told of an error. */
export interface Fault {
  readonly status: number;
  readonly code: string;
  readonly message: string;
  readonly details: Readonly<Record<string, unknown>> | null;
  readonly traceId: string;
  /** Seconds until it is worth asking again, where the service told. */
  readonly retryAfterSeconds: number | null;
}

/**
 * The service refused. Where a purchase throws it, nothing was charged; a direct payment stays set aside until its signature
 * has ended, since it can be settled until then.
 */
export class ServiceError extends SpeechgateError {
  override readonly name: string = 'ServiceError';
  readonly status: number;
  readonly code: string;
  readonly details: Readonly<Record<string, unknown>> | null;
  readonly traceId: string;
  readonly retryAfterSeconds: number | null;
  /** What the service says about the money; null when it had not looked up the payment. */
  readonly payment: PaymentReport | null;

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

/** 400, 413, 415 and the like: the request has to be changed. */
export class InvalidRequestError extends ServiceError {
  override readonly name = 'InvalidRequestError';
}

/** 402: the account or wallet has not enough. */
export class PaymentRequiredError extends ServiceError {
  override readonly name: string = 'PaymentRequiredError';
  /** Where card credit is bought; null in the other flows. It may name the account, and is not shown with the error. */
  declare readonly topUpUrl: string | null;
  /** What is missing at least, where the service told price and balance. */
  readonly missingMicroUsd: bigint | null;

  constructor(fault: Fault, way: { readonly topUpUrl: string | null; readonly missingMicroUsd: bigint | null }) {
    super(fault);
    Object.defineProperty(this, 'topUpUrl', { value: way.topUpUrl });
    this.missingMicroUsd = way.missingMicroUsd;
  }
}

/** 402: the price is above the one that the purchase allowed, since it has risen. Nothing was charged. */
export class PriceChangedError extends ServiceError {
  override readonly name = 'PriceChangedError';

  constructor(fault: Fault) {
    const { priceMicroUsd } = fault.details ?? {};
    const price = Number.isSafeInteger(priceMicroUsd) ? ` to ${priceMicroUsd} micro-USD` : '';
    super(
      fault,
      `The price has risen${price}, above what this purchase allowed. Nothing was charged; ask for the price again.`,
    );
  }
}

/** 429: too much was asked. */
export class RateLimitedError extends ServiceError {
  override readonly name = 'RateLimitedError';
}

/** 5xx: the service, or what it relies on, could not. */
export class ServiceUnavailableError extends ServiceError {
  override readonly name = 'ServiceUnavailableError';
}

/** The service could not be reached, and nothing that pays had left. */
export class UnreachableError extends SpeechgateError {
  override readonly name = 'UnreachableError';
}

/** An answer was larger, or took longer, than what was asked for can be. It was not read any further. */
export class TooLargeError extends SpeechgateError {
  override readonly name = 'TooLargeError';
}

/** The purchase may cost more than its caps leave. Nothing was signed. */
export class OverCapError extends SpeechgateError {
  override readonly name: string = 'OverCapError';
  /** `unconfirmed`: of what was signed and, by the service's word alone, not charged. */
  readonly scope: 'call' | 'client' | 'day' | 'total' | 'unconfirmed';
  readonly limitMicroUsd: bigint;
  readonly leftMicroUsd: bigint;
  readonly wantedMicroUsd: bigint;

  constructor(cap: {
    readonly scope: OverCapError['scope'];
    readonly limitMicroUsd: bigint;
    readonly leftMicroUsd: bigint;
    readonly wantedMicroUsd: bigint;
  }) {
    const { scope, limitMicroUsd, leftMicroUsd, wantedMicroUsd } = cap;
    super(`This may cost ${wantedMicroUsd} micro-USD; ${leftMicroUsd} are left of ${limitMicroUsd} (${scope}).`);
    this.scope = scope;
    this.limitMicroUsd = limitMicroUsd;
    this.leftMicroUsd = leftMicroUsd;
    this.wantedMicroUsd = wantedMicroUsd;
  }
}

/** The metadata or the challenge is not what the pinned key vouches for. Nothing was signed. */
export class UntrustedError extends SpeechgateError {
  override readonly name: string = 'UntrustedError';
  /** For programs, such as wrong_key, expired, wrong_payee. */
  readonly reason: string;

  constructor(reason: string, message: string) {
    super(message);
    this.reason = reason;
  }
}

/**
 * Whether the purchase was charged could not be found out. Don't pay again: give `pending` to `resume`, now or later,
 * and the audio comes, or the certainty that nothing was charged.
 */
export class OutcomeUnknownError extends SpeechgateError {
  override readonly name: string = 'OutcomeUnknownError';
  /** Not shown with the error: it has the text, and what pays. */
  declare readonly pending: PendingPurchase;

  constructor(pending: PendingPurchase, options?: ErrorOptions) {
    super(`Whether ${pending.identifier} was charged is not known yet. Resume it instead of paying again.`, options);
    Object.defineProperty(this, 'pending', { value: pending });
  }
}

/**
 * The purchase was charged, or may have been, and its audio can't be had any more: a card request without `durable` whose
 * answer was lost, or a prepaid one that was asked for again too late. Asking again is a new purchase.
 */
export class AudioLostError extends SpeechgateError {
  override readonly name: string = 'AudioLostError';
  /** Null when it is not known whether it was charged. */
  readonly chargedMicroUsd: bigint | null;
  readonly maxMicroUsd: bigint;

  constructor(
    message: string,
    money: { readonly chargedMicroUsd: bigint | null; readonly maxMicroUsd: bigint },
    options?: ErrorOptions,
  ) {
    super(message, options);
    this.chargedMicroUsd = money.chargedMicroUsd;
    this.maxMicroUsd = money.maxMicroUsd;
  }
}
