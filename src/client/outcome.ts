import type { SpeechgateError } from './errors.ts';
import type { Service } from './payment-way.ts';
import type { PendingPurchase } from './pending-purchase.ts';

/** What the service's answer to a pending request tells of the purchase. */
export type Outcome<Bought> =
  /** It is paid, and here is what was bought. */
  | { readonly outcome: 'bought'; readonly bought: Bought; readonly chargedMicroUsd: bigint }
  /** It was charged, and what was bought is gone. */
  | { readonly outcome: 'lost'; readonly error: SpeechgateError; readonly chargedMicroUsd: bigint }
  /**
   * Neither this request nor an earlier one with the same payment was charged. `again` is worth trying: the identical
   * request, a new purchase, or a new purchase once catalog and metadata were read again.
   */
  | {
      readonly outcome: 'refused';
      readonly error: SpeechgateError;
      readonly again?: 'identical' | 'anew' | 'terms';
      readonly retryAfterSeconds?: number | null;
      /** By how much the own clock is ahead of the `Date` of the answer, in milliseconds; 0 where it has none. */
      readonly clockAheadMs?: number;
    }
  /** It can't be told yet. */
  | { readonly outcome: 'unknown'; readonly cause: unknown; readonly retryAfterSeconds?: number | null };

/** The answer to a pending request; its body is not read yet where it succeeded. */
export interface Answer {
  readonly response: Response;
  readonly body: ReadableStream<Uint8Array> | null;
  /** The error's body where it did not succeed. */
  readonly error: unknown;
}

/** Tells what an answer means, for one kind of purchase. */
export type Reader<Bought> = (asked: {
  readonly pending: PendingPurchase;
  readonly answer: Answer;
  /** Whether an earlier request with this payment may have arrived. */
  readonly isRepetition: boolean;
  readonly service: Service;
  readonly signal: AbortSignal;
}) => Promise<Outcome<Bought>>;
