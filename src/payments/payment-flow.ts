import type { Readable } from 'node:stream';
import type { FastifyBaseLogger } from 'fastify';
import type { PaymentOutcome } from '../contract/types.ts';
import type { UpstreamUsage, UsageRecord } from '../ledger/hold.ts';
import type { Utterance } from '../speech/provider.ts';
import type { PendingSlot } from './limits/rolling-window.ts';
import type { Receipt, Refused } from './refusal.ts';

/**
 * A way to pay for speech. The operation reads the credential; `speak` authorizes, and ends the hold:
 *
 *     credentialOf  the request's headers -> a credential, or a refusal
 *     authorize     the credential -> a hold, the response that was paid before, or a refusal
 *     the hold      is ended by exactly one of capture and void
 *
 * A hold is a transfer of the ledger (BalanceHold) or a payment on the chain (DirectHold). Both have a lease, and a
 * reconciler ends them if their process dies.
 */
export interface PaymentFlow<Credential, C extends Charge = Charge> {
  readonly name: string;
  credentialOf(
    headers: Readonly<Record<string, string | undefined>>,
  ): { readonly outcome: 'read'; readonly credential: Credential } | Refused;
  /** Whether the credential seems valid, for limits only (R48): `authorize` checks again, so never charge on this. */
  verify?(credential: Credential, request: RequestContext): Promise<boolean>;
  /** Holds the price. */
  authorize(credential: Credential, charge: C): Promise<Authorization>;
}

/** What became of a credential. A flow's own `authorize` returns some of these, with its own hold, receipt and codes. */
export type Authorization = Held | Replayed | Refused;

export interface Held<Hold extends PaymentHold = PaymentHold> {
  readonly outcome: 'held';
  readonly hold: Hold;
}

/** The response that was paid before. */
export interface Replayed {
  readonly outcome: 'replayed';
  readonly audio: Readable;
  readonly sizeBytes: number;
  readonly receipt: Receipt | undefined;
}

/** No earlier request with this payment was found, as far as `payment` says (R64). */
export interface NewRequest {
  readonly outcome: 'new';
  readonly payment: PaymentOutcome;
}

export interface Charge {
  readonly utterance: Utterance;
  readonly priceMicroUsd: bigint;
  readonly usage: UsageRecord;
  readonly request: RequestContext;
  readonly slot?: PendingSlot;
}

export interface RequestContext {
  readonly method: string;
  readonly url: string;
  readonly bytes: Uint8Array;
  readonly client: string;
  readonly traceId: string;
  /** Adds the trace id to each line. */
  readonly log: FastifyBaseLogger;
  readonly response: ResponseEvents;
}

export interface ResponseEvents {
  /** Called once, when the last byte was handed over or the caller disconnected. `isError`: nothing may be charged. */
  onEnd(listener: (isError: boolean) => void): void;
  /** The caller has disconnected. */
  readonly isClosed: boolean;
  abort(): void;
}

export interface PaymentHold {
  readonly receipt: Receipt | undefined;
  readonly timeoutMs?: number;
  /** Takes the money before the response, in flows that do so (R21). If refused, the audio must not be delivered. */
  settle?(upstream: UpstreamUsage | undefined, audio: Buffer): Promise<Refused | undefined>;
  /** Takes the money after delivery. Returns false if the hold had ended before: nothing is charged. */
  capture(upstream: UpstreamUsage | undefined, audio?: Buffer): Promise<boolean>;
  void(): Promise<void>;
  /** Renews the lease until the returned function is called. Once the lease is lost, nothing may be delivered. */
  keepLease?(onLost: () => void): () => void;
  /** Whether no other process can own it yet, even if this process was frozen. */
  ownsLease?(): boolean;
}
