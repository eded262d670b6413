import type { Flow, PendingPurchase } from './pending-purchase.ts';

/**
 * What may be spent. The client asks it before it signs anything:
 *
 *     reserve  the most that the purchase may cost is set aside, or an `OverCapError` is thrown
 *     record   what is about to leave is kept, so that its end can be asked for after this process has died
 *     settle   what it did cost is spent, and the rest is free again; a purchase whose end is unknown stays set aside
 */
export interface Budget {
  reserve(purchase: { readonly flow: Flow; readonly maxMicroUsd: bigint }): Promise<Reservation>;
}

/** What was set aside for one purchase. */
export interface Reservation {
  /** Resolves when it is kept; only then the request leaves. */
  record(pending: PendingPurchase): Promise<void>;
  /**
   * 0 when nothing was charged. Said once. The amount is the service's word: `signedRest` is what has to stay set aside of a
   * signature until it ends.
   */
  settle(chargedMicroUsd: bigint, known?: KnownOfPurchase): Promise<void>;
}

/** What is known of a purchase beside its charge. */
export interface KnownOfPurchase {
  /** Nothing had left: what was signed, if anything, nobody has. */
  readonly isUnsent?: boolean;
  /** By how much the own clock is ahead of the service's, in milliseconds. */
  readonly clockAheadMs?: number;
  /** What the service says is left of a credit account. */
  readonly balance?: AccountBalance;
}

export interface AccountBalance {
  /** SHA-256 of the account's id. */
  readonly account: string;
  readonly balanceMicroUsd: bigint;
}
