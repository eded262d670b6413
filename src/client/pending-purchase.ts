/**
 * A purchase that was signed and whose end is not known: what it takes to ask the service again with the identical
 * request, in this process or a later one. Plain JSON. It holds the text, and for card credits the bearer id of the
 * account: keep it where only its owner reads.
 */
export interface PendingPurchase {
  readonly flow: Flow;
  readonly kind: 'speech' | 'deposit';
  /** The payment identifier, the nonce, or the idempotency-key. */
  readonly identifier: string;
  /** Without a slash at the end. */
  readonly baseUrl: string;
  readonly method: 'GET' | 'POST';
  /** Path and query, as they were signed. */
  readonly target: string;
  readonly headers: Readonly<Record<string, string>>;
  /** Empty for a GET. */
  readonly body: string;
  /** The most that it may have cost, in micro-USD, as decimal digits. */
  readonly maxMicroUsd: string;
  /** Unix seconds from which on the service takes it no longer for a new purchase; null where it always would. */
  readonly expiresAt: number | null;
}

/** How a purchase is paid: card credits, one payment in USDC, or a prepaid balance in USDC. */
export type Flow = 'card' | 'direct' | 'prepaid';

/** What was charged, in micro-USD: all that was set aside where the service tells no amount up to that. */
export function chargedWithin(chargedMicroUsd: bigint | null, pending: Pick<PendingPurchase, 'maxMicroUsd'>): bigint {
  const maxMicroUsd = BigInt(pending.maxMicroUsd);
  const isWithin = chargedMicroUsd !== null && chargedMicroUsd >= 0n && chargedMicroUsd <= maxMicroUsd;
  return isWithin ? chargedMicroUsd : maxMicroUsd;
}

/** Whether it can be asked for again: a card request that is no job would be paid again. */
export const isRepeatable = ({ flow, headers }: PendingPurchase): boolean =>
  flow !== 'card' || 'idempotency-key' in headers;
