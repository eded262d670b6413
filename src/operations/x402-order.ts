import { failure } from '../http/structured-error.ts';
import type { Offer } from '../x402/offer.ts';
import type { QuotedOrder } from '../x402/quoted-order.ts';

/** An order at the x402 endpoints, and what is to be paid for it. */
export interface OfferedOrder {
  readonly order: QuotedOrder;
  /** The first one is what a challenge names. */
  readonly offers: readonly [Offer, ...Offer[]];
  /** Its quote has expired: only a repetition of a payment that was made in time is answered. */
  readonly hasExpired: boolean;
}

export const textMissing = () =>
  failure('INVALID_REQUEST', 'text is required with a payment.', { field: 'text', rule: 'required' });

export const quoteExpired = () =>
  failure('QUOTE_EXPIRED', 'The quote has expired. Get a new one from POST /x402/tts/quote.', {
    field: 'quoteToken',
    rule: 'expiresAt',
  });
