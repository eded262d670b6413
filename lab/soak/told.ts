import { createWriteStream, type WriteStream } from 'node:fs';
import { finished } from 'node:stream/promises';
import type { GatewayName } from './world/world.ts';

/** One operation, from its first request to its end, as its caller saw it. */
export interface Told {
  /** Name of the caller, such as `direct 2`. With the number and the seed it determines the operation's draws. */
  readonly caller: string;
  /** From 0. `SETUP` for purchases before the first operation. */
  readonly number: number;
  readonly flow: Flow;
  /** Milliseconds since the start of the run, by the monotonic clock. */
  readonly from: number;
  readonly until: number;
  /** When the audio arrived, in Unix milliseconds, if not at the end. */
  readonly at?: number;
  readonly servedBy?: GatewayName;
  readonly requests: number;
  readonly end: End;
  /** Price or credit in micro-USD. */
  readonly amountMicroUsd: bigint;
  /** Identifiers that find it in the books. */
  readonly keys: Keys;
  /** A response that breaks a promise, whatever the books say. */
  readonly wrong?: string;
}

/** The number of purchases before a caller's first operation. */
export const SETUP = -1;

export type Flow =
  | ('card' | 'card, streamed' | 'job' | 'prepaid')
  | ('top-up' | 'refund' | 'dispute')
  | ('direct' | 'direct, quoted' | 'deposit');

/**
 * - `served`: complete audio, or a confirmed credit, deposit or quote
 * - `refused`: a final response that says nothing is charged
 * - `left`: the caller disconnected in a flow without retries (R55)
 * - `broken off`: the service or its death cut the response in such a flow
 * - `open`: no final response, despite retries until the end of the run
 */
export type End = 'served' | 'refused' | 'left' | 'broken off' | 'open';

export interface Keys {
  /** Trace ids of the responses to requests that pay, in order. */
  readonly traceIds: readonly string[];
  /** Card account or address in lower case that pays or is credited. */
  readonly payer?: string;
  readonly jobId?: string;
  readonly sessionId?: string;
  /** EIP-3009 nonce or prepaid nonce. */
  readonly nonce?: string;
  readonly paymentId?: string;
}

/** Writes the callers' records to a file, one line of JSON for each operation. Memory holds only the counts. */
export class ToldLog {
  readonly path: string;
  readonly #file: WriteStream;
  readonly #wallTime: (ms: number) => number;
  requests = 0;
  count = 0;

  /**
   * @param path must not exist yet
   * @param wallTime converts a time of the run to Unix milliseconds. A second clock could read later than the end.
   */
  constructor(path: string, wallTime: (ms: number) => number) {
    this.path = path;
    this.#wallTime = wallTime;
    this.#file = createWriteStream(path, { flags: 'wx' });
  }

  readonly add = (told: Told): void => {
    this.count += 1;
    this.requests += told.requests;
    const line = { ...told, amountMicroUsd: String(told.amountMicroUsd), at: told.at ?? this.#wallTime(told.until) };
    this.#file.write(`${JSON.stringify(line)}\n`);
  };

  async close(): Promise<void> {
    this.#file.end();
    await finished(this.#file);
  }
}
