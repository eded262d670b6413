import { setTimeout as sleep } from 'node:timers/promises';
import type { Random } from '../random.ts';
import type { End, Flow, Keys } from '../told.ts';
import type { GatewayName, Service } from '../world/world.ts';
import type { HangUp, Heard, Line, Sent } from './line.ts';
import { isSpeech } from './text.ts';

/** How long a request is retried: longer than any fault and its recovery. */
const TIMEOUT_MS = 300_000;
/** Timeouts of a response: shorter and longer than the time until others take over from a dead process. */
const ANSWER_TIMEOUT_MS = [10_000, 60_000] as const;
const SHORTEST_PAUSE_MS = 100;
const LONGEST_PAUSE_MS = 2_000;

export interface Outcome {
  readonly flow: Flow;
  readonly end: End;
  readonly amountMicroUsd: bigint;
  readonly keys?: Omit<Keys, 'traceIds'>;
}

/** One caller, which repeats its operation. */
export interface Customer {
  readonly longestPauseMs: number;
  /** Runs one operation. Never throws because of a response. */
  buy(operation: Operation): Promise<Outcome>;
}

/** Opens a caller with its credit or coins. @returns also the purchases for that, which the judge checks like any other */
export type Open = (parts: {
  readonly world: Service;
  readonly operation: Operation;
  /** 32 bytes, unique to this caller. */
  readonly key: Buffer;
}) => Promise<{ readonly customer: Customer; readonly bought?: Outcome }>;

type Lines = readonly [Line, Line];

/** An operation in progress: its random draws, requests and responses. */
export class Operation {
  readonly random: Random;
  readonly #lines: Lines;
  readonly #answerTimeoutMs: number;
  #turn: number;
  requests = 0;
  readonly traceIds: string[] = [];
  wrong: string | undefined;
  /** When the audio first arrived, in Unix milliseconds, and its gateway. */
  served: { readonly at: number; readonly by: GatewayName } | undefined;

  constructor(random: Random, lines: Lines) {
    this.random = random;
    this.#lines = lines;
    this.#answerTimeoutMs = random.between(...ANSWER_TIMEOUT_MS);
    this.#turn = random.between(0, 1);
  }

  /** Records a response that breaks a promise. Keeps the first. */
  isWrong(words: string): void {
    this.wrong ??= words;
  }

  /** The response is the speech of the text. Records when it arrived. */
  hears(heard: Heard, text: string): boolean {
    if (!isSpeech(heard, text)) return false;
    this.served ??= { at: Date.now(), by: heard.gateway };
    return true;
  }

  /** Sends to the two gateways in turn. */
  ask(sent: Sent, hangUp?: HangUp): Promise<Heard> {
    this.requests += 1;
    const line = this.#lines[this.#turn++ % 2] as Line;
    return line.ask(sent, this.#answerTimeoutMs, hangUp);
  }

  /** Sends a request that pays, and records its trace id. */
  async pay(sent: Sent, hangUp?: HangUp): Promise<Heard> {
    const heard = await this.ask(sent, hangUp);
    const traceId = heard.headers['x-trace-id'];
    if (typeof traceId === 'string') this.traceIds.push(traceId);
    return heard;
  }

  /**
   * Retries the same request at both gateways in turn until the outcome is known.
   * @param read returns undefined while the outcome is unknown
   * @returns undefined after the timeout
   */
  async retryUntilResolved<T>(
    ask: () => Promise<Heard>,
    read: (heard: Heard) => T | undefined | Promise<T | undefined>,
  ): Promise<T | undefined> {
    let pauseMs = SHORTEST_PAUSE_MS;
    for (const giveUpAt = performance.now() + TIMEOUT_MS; performance.now() < giveUpAt; ) {
      const end = await read(await ask());
      if (end !== undefined) return end;
      await sleep(pauseMs);
      pauseMs = Math.min(2 * pauseMs, LONGEST_PAUSE_MS);
    }
    return undefined;
  }
}

/** Code and details of a structured error. Undefined for any other response. */
export function errorOf(
  heard: Heard,
): { readonly code: string; readonly details: Record<string, unknown> } | undefined {
  const { error } = jsonOf(heard) ?? {};
  if (typeof error !== 'object' || error === null) return undefined;
  const { code, details } = error as { code?: unknown; details?: unknown };
  return { code: String(code), details: (details ?? {}) as Record<string, unknown> };
}

/** The JSON body of a complete response. */
export function jsonOf({ isWhole, body }: Heard): Record<string, unknown> | undefined {
  if (!isWhole) return undefined;
  try {
    return JSON.parse(body.toString());
  } catch {
    return undefined;
  }
}

/**
 * A retry may get another response. A frozen process may send 408 before it reads a request.
 * Nothing has started then, so the caller may retry (RFC 9110 section 15.5.9).
 */
export const isPassing = ({ status, isWhole }: Heard): boolean =>
  !isWhole || status >= 500 || status === 429 || status === 408;

export const jsonPost = (path: string, value: unknown, headers: Readonly<Record<string, string>> = {}): Sent => ({
  method: 'POST',
  path,
  headers: { 'content-type': 'application/json', ...headers },
  body: JSON.stringify(value),
});

export const speechRequest = (
  path: string,
  text: string,
  isGet: boolean,
  headers: Readonly<Record<string, string>> = {},
): Sent =>
  isGet
    ? { method: 'GET', path: `${path}?text=${encodeURIComponent(text)}`, headers }
    : jsonPost(path, { text }, headers);

export async function mustNotServe(operation: Operation, sent: Sent, what: string): Promise<void> {
  const { status } = await operation.pay(sent);
  if (status === 200) operation.isWrong(`${what} was served`);
}
