import type { GatewayName } from './world/world.ts';

/** One operation of a caller, from its first request to its end, as the caller saw it. */
export interface Told {
  /** Who, such as `direct 2`; with the number it is the name by which the operation is drawn from the seed. */
  readonly caller: string;
  /** From 0 on; `SETUP` for what a caller buys before its first operation. */
  readonly number: number;
  readonly flow: Flow;
  /** Milliseconds from the beginning of the run, by the monotonic clock. */
  readonly from: number;
  readonly until: number;
  /** When the audio came, in Unix milliseconds, where that was not at the end. */
  readonly at?: number;
  /** Which gateway it came from. */
  readonly servedBy?: GatewayName;
  /** HTTP requests that it took. */
  readonly requests: number;
  readonly end: End;
  /** What it costs when it is charged, or what it brings when it is credited; in micro-USD. */
  readonly amountMicroUsd: bigint;
  /** By what the books can be asked for it. */
  readonly keys: Keys;
  /** An answer that breaks a promise, whatever the books say. */
  readonly wrong?: string;
}

/** The number of what comes before a caller's first operation. */
export const SETUP = -1;

export const FLOWS = [
  'card',
  'card, streamed',
  'job',
  'top-up',
  'refund',
  'dispute',
  'direct',
  'direct, quoted',
  'deposit',
  'prepaid',
  'quote',
  'feedback',
] as const;

export type Flow = (typeof FLOWS)[number];

/**
 * - `served`: the audio has come whole, or the credit, deposit or quote was confirmed
 * - `refused`: it was said that nothing is charged, in a final answer
 * - `left`: the caller hung up on purpose, or the answer broke off in a flow that nothing can ask for again (R55)
 * - `open`: the end could not be learnt although the identical request was repeated until the end of the run
 */
export type End = 'served' | 'refused' | 'left' | 'open';

export interface Keys {
  /** Trace ids of the answers to requests that pay, in their order. */
  readonly traceIds: readonly string[];
  /** Card account, or address in lower case, that pays or is credited. */
  readonly payer?: string;
  readonly jobId?: string;
  readonly sessionId?: string;
  /** Of the signature: EIP-3009 or prepaid nonce. */
  readonly nonce?: string;
  readonly paymentId?: string;
}
