import type { PaymentOutcome } from '../contract/types.ts';
import type { Database } from '../db/database.ts';
import type { PaidFor, SpokenBy } from '../ledger/paid-for.ts';
import type { Answer } from '../lib/answer.ts';
import type { PendingSlot } from '../limits/slot.ts';
import type { Utterance } from '../speech/provider.ts';
import type { RefusalCode, Refused } from './refusal.ts';

/**
 * A way to pay for speech; each flow is one implementation of this. The operation reads the credential, and `speak`
 * authorizes and ends the hold:
 *
 *     credentialOf  the request's headers -> what the payer shows, or a refusal
 *     authorize     the credential -> a hold, the answer that was paid before, or a refusal
 *     the hold      is ended by exactly one of capture and void
 *
 * A hold that is a transfer of the ledger (HoldKeeper) is given back when its process dies, and audited. One that is
 * none owes a lease, a reconciler and an audit of its own, as direct payments have them.
 */
export interface PaymentFlow<
  Credential = unknown,
  Code extends RefusalCode = RefusalCode,
  Hold extends PaymentHold<Code> = PaymentHold<Code>,
  C extends Charge = Charge,
  Replay = never,
> {
  /** As the log and the metrics name it. */
  readonly name: string;
  /** What the caller of speech that failed is told of his money. */
  readonly untaken: string;
  /** Its authorization asks others, and takes as long as they do: no place at the provider is kept meanwhile. */
  readonly isRemote: boolean;
  /** Reads the credential from a request's headers. Nothing is asked for yet. */
  credentialOf(
    headers: Readonly<Record<string, string | undefined>>,
  ): { readonly outcome: 'read'; readonly credential: Credential } | Refused<Code>;
  /**
   * Whether the credential is good for the request, as far as it can be told without holding anything: `authorize` judges
   * again. With it, each credential that fails takes a slot of its client's window; without, each request does (R48), and
   * nobody need know before.
   */
  verifies?(credential: Credential, request: PaidRequest): Promise<boolean>;
  /**
   * Holds the price. Nothing is spoken before.
   * @param trx the transaction of a job that is to own the hold; without one, this process delivers what it pays for
   */
  authorize(credential: Credential, charge: C, trx?: Database): Promise<Authorization<Code, Hold, Replay>>;
}

/** The look-up found no earlier request with this payment, as far as `payment` says (R64). */
export interface NewRequest {
  readonly outcome: 'new';
  readonly payment: PaymentOutcome;
}

/** What is to be paid for, and the request that asks for it. */
export interface Charge {
  readonly utterance: Utterance;
  readonly priceMicroUsd: bigint;
  readonly paidFor: PaidFor;
  readonly request: PaidRequest;
  /** Of the request's window, where it was not taken before. */
  readonly slot?: PendingSlot;
}

/** A request, as far as its payment is concerned. */
export interface PaidRequest {
  readonly method: string;
  /** Path and query as they were sent. */
  readonly url: string;
  readonly bytes: Uint8Array;
  /** The client's address. */
  readonly ip: string;
  readonly traceId: string;
  readonly answer: Answer;
}

export type Authorization<Code extends RefusalCode, Hold extends PaymentHold<Code>, Replay = never> =
  | { readonly outcome: 'held'; readonly hold: Hold }
  | Replayed<Replay, Hold['receipt']>
  | Refused<Code>;

/** The request was paid before, and this is its answer: nothing is paid again. Never, where nothing is replayed. */
export type Replayed<Delivered, R = Receipt> = Delivered extends unknown
  ? { readonly outcome: 'replayed'; readonly delivered: Delivered; readonly receipt: R }
  : never;

/** Response headers that tell the payer what has become of his money. */
export type Receipt = Readonly<Record<string, string | bigint | boolean>>;

/** Money that is held for one answer. Exactly one of capture and void ends it. */
export interface PaymentHold<Code extends RefusalCode = RefusalCode> {
  /** What the payer is told of it, as it is now; undefined while there is nothing to tell. */
  readonly receipt: Receipt | undefined;
  /** The longest that its synthesis may take, where that is less than what the provider may take. */
  readonly timeoutMs?: number;
  /**
   * Takes the money. Refused: what was made must not be delivered.
   * @param upstream that spoke, where it is known
   * @param audio the whole of it; undefined where it is being heard already
   */
  capture(upstream: SpokenBy | undefined, audio?: Buffer): Promise<Refused<Code> | undefined>;
  /** Gives the money back. */
  void(): Promise<void>;
  /**
   * Keeps its lease from passing, for speech that takes longer than that, until the returned function is called.
   * Undefined where speech that takes so long can't be paid.
   * @param lost called when the hold belongs to this process no more, or may soon: nothing more may be delivered
   */
  keep?(lost: () => void): () => void;
}
