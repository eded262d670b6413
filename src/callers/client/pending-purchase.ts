/** How a purchase is paid: card credits, one payment in USDC, or a prepaid balance in USDC. */
export type Flow = 'card' | 'direct' | 'prepaid';

export const CARD_TARGET = '/tts';
export const JOB_TARGET = '/tts?async=true';
export const X402_TARGET = '/x402/tts';
export const DEPOSIT_TARGET = '/x402/deposit';

/**
 * A signed purchase with an unknown outcome, as plain JSON. Any process can repeat the identical request from it.
 * Store it privately: it contains the text, and for card credits the account's bearer id.
 */
export interface PendingPurchase {
  readonly flow: Flow;
  readonly kind: 'speech' | 'deposit';
  /** The payment identifier, the nonce, or the idempotency-key. */
  readonly identifier: string;
  readonly baseUrl: string;
  readonly method: 'GET' | 'POST';
  readonly target: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
  /** The maximum price, as decimal digits. */
  readonly maxMicroUsd: string;
  /** Unix seconds. After this the service sells nothing for it; null if it never expires. */
  readonly expiresAt: number | null;
}

/** Allows for clock skew and network delay. */
export const CLOCK_LEEWAY_SECONDS = 30;
/** After the expiry. The service keeps a nonce for a day from its use (R34), which is before the expiry. */
const NONCE_RETENTION_SECONDS = 86_400 - 300;

/** The reported charge if it is from 0 to the maximum, else the maximum. */
export function boundedCharge(chargedMicroUsd: bigint | null, pending: Pick<PendingPurchase, 'maxMicroUsd'>): bigint {
  const maxMicroUsd = BigInt(pending.maxMicroUsd);
  const isWithin = chargedMicroUsd !== null && chargedMicroUsd >= 0n && chargedMicroUsd <= maxMicroUsd;
  return isWithin ? chargedMicroUsd : maxMicroUsd;
}

export const isJob = ({ target }: PendingPurchase): boolean => target === JOB_TARGET;

/** False for a card request without a job: a retry would be charged again. */
export const isRepeatable = ({ flow, headers }: PendingPurchase): boolean =>
  flow !== 'card' || 'idempotency-key' in headers;

export const hasExpired = ({ expiresAt }: PendingPurchase, clockAheadMs = 0): boolean =>
  expiresAt !== null && Date.now() - Math.max(0, clockAheadMs) > (expiresAt + CLOCK_LEEWAY_SECONDS) * 1000;

/** A direct payment can be settled until it expires, whatever the service responds (R23). */
export const canStillSettle = (pending: PendingPurchase, clockAheadMs = 0): boolean =>
  pending.flow === 'direct' && !hasExpired(pending, clockAheadMs);

/** After this the service may no longer know what a prepaid nonce paid for. */
export const mayNonceBeDeleted = ({ flow, expiresAt }: PendingPurchase): boolean =>
  flow === 'prepaid' && expiresAt !== null && Date.now() / 1000 > expiresAt + NONCE_RETENTION_SECONDS;
