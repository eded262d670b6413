import type { WorkRefusal } from '../limits/unpaid-work.ts';

/**
 * What a payment flow answers when it is asked to authorize a price: a hold that is ended by exactly one of capture and
 * void, a refusal that says what to pay, or that the payer's unpaid work leaves no room for more now.
 */
export type Authorization<Refusal> =
  | { readonly outcome: 'held'; readonly hold: PaymentHold }
  | { readonly outcome: 'refused'; readonly refusal: Refusal }
  | { readonly outcome: 'busy'; readonly reason: WorkRefusal };

export interface PaymentHold {
  /** What the payer has left, in micro-USD. */
  readonly balanceMicroUsd: bigint;
  /** Takes the money. False means that the hold is lost, and what was made for it must not be delivered. */
  capture(): Promise<boolean>;
  /**
   * Keeps the hold's lease from passing, for work that takes longer than it, until the returned function is called.
   * @param lost called when the hold belongs to this process no more, or may soon: nothing more may be delivered
   */
  keep(lost: () => void): () => void;
  /** Gives the money back. */
  void(): Promise<void>;
}
