import { createHash } from 'node:crypto';
import type { PaidFor } from '../ledger/paid-for.ts';
import { canonicalQuery } from '../x402/canonical-query.ts';
import type { TransferClaim } from '../x402/chain.ts';
import type { Resource } from '../x402/challenge.ts';
import { decodeEnvelope, InvalidEnvelope, type PaymentEnvelope } from '../x402/envelope.ts';
import type { Offer } from '../x402/offer.ts';
import type { PaidRequest } from './payment-flow.ts';
import { refused } from './refusal.ts';

/** What tells whether two requests are the same (R22), and the trace id of this one. */
export interface PaymentIdentity extends Pick<PaidRequest, 'method' | 'url' | 'bytes' | 'traceId'> {
  readonly envelope: PaymentEnvelope;
}

/** A request that is paid by an on-chain authorization. */
export interface PaymentRequest extends PaymentIdentity {
  /** What may have been accepted. */
  readonly offers: readonly Offer[];
  readonly resource: Resource;
  /** Undefined for a deposit. */
  readonly paidFor?: PaidFor | undefined;
}

/** Reads the payment-signature header, or refuses it. */
export function readPaymentHeader(headers: Readonly<Record<string, string | undefined>>) {
  try {
    return { outcome: 'read' as const, credential: decodeEnvelope(String(headers['payment-signature'])) };
  } catch (error) {
    if (!(error instanceof InvalidEnvelope)) throw error;
    const { field, rule } = error;
    const message = `payment-signature can't be read. ${error.message}`;
    return refused('INVALID_PAYMENT_PAYLOAD', 'malformed_payment', { fault: { field, rule, message } });
  }
}

/** What makes a request the same: method, path, canonical query (R49), body bytes and payload (R22). */
export function requestHash({ method, url, bytes, envelope }: PaymentIdentity): Buffer {
  const path = decodeURIComponent(url.split('?', 1)[0] as string);
  const query = canonicalQuery(url);
  const target = query === '' ? path : `${path}?${query}`;
  const hash = createHash('sha256').update(`${method}\0${target}\0${bytes.length}\0`).update(bytes);
  return hash.update(envelope.canonical).digest();
}

/** What an authorization claims to transfer. */
export const claimOf = ({ authorization }: Pick<PaymentEnvelope, 'authorization'>): TransferClaim => ({
  payer: authorization.from,
  nonce: authorization.nonce,
  payTo: authorization.to,
  amount: authorization.value,
  validBefore: authorization.validBefore,
});
