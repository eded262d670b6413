import type { Flow } from './pending-purchase.ts';

/** What is to be spoken; the service's own defaults where something is left out. */
export interface SpeechOrder {
  readonly text: string;
  readonly model?: string;
  readonly voice?: string;
  /** 0.5 to 2. */
  readonly speed?: number;
}

/** Speech that was paid for. */
export interface Speech {
  /** As it arrives. It is read once: here, or by `bytes`. */
  readonly audio: ReadableStream<Uint8Array>;
  /** The whole audio. */
  bytes(): Promise<Uint8Array>;
  readonly contentType: 'audio/mpeg' | 'audio/wav';
  readonly receipt: Receipt;
}

/** What was paid, and how. */
export interface Receipt {
  readonly flow: Flow;
  readonly chargedMicroUsd: bigint;
  /** What is left of the account or prepaid balance; null for a direct payment, and where the service did not tell. */
  readonly balanceMicroUsd: bigint | null;
  /** The payment identifier, the nonce, or the idempotency-key; null for a card request without one. */
  readonly identifier: string | null;
  /** Of a direct payment on the chain. */
  readonly transaction: string | null;
  /** True when it had been paid by an earlier request, whose answer was lost. */
  readonly isReplay: boolean;
  readonly traceId: string;
}
