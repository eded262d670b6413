import { setTimeout as sleep } from 'node:timers/promises';
import type { Random } from '../random.ts';
import type { End, Flow, Keys } from '../told.ts';
import type { GatewayName } from '../world/world.ts';
import type { HangUp, Heard, Line, Sent } from './line.ts';
import { isSpeech } from './text.ts';

/** How long the identical request is repeated: longer than any fault and all that has to be healed after it. */
const PATIENCE_MS = 300_000;
/** How long an answer is waited for, before and after whoever owes it can be taken for dead. */
const ANSWER_PATIENCE_MS = [10_000, 60_000] as const;
const SHORTEST_PAUSE_MS = 100;
const LONGEST_PAUSE_MS = 2_000;

/** What an operation came to. */
export interface Outcome {
  readonly flow: Flow;
  readonly end: End;
  readonly amountMicroUsd: bigint;
  readonly keys?: Omit<Keys, 'traceIds'>;
}

/** The ways to one gateway and the other. */
type Lines = readonly [Pick<Line, 'ask'>, Pick<Line, 'ask'>];

/** One operation under way: what is drawn for it, and what it has asked and was told. */
export class Operation {
  readonly random: Random;
  readonly #lines: Lines;
  readonly #answerPatienceMs: number;
  /** Which gateway is asked next. */
  #turn: number;
  requests = 0;
  readonly traceIds: string[] = [];
  #wrong: string | undefined;
  /** When the audio came first, in Unix milliseconds, and from whom. */
  served: { readonly at: number; readonly by: GatewayName } | undefined;

  constructor(random: Random, lines: Lines) {
    this.random = random;
    this.#lines = lines;
    this.#answerPatienceMs = random.between(...ANSWER_PATIENCE_MS);
    this.#turn = random.between(0, 1);
  }

  get wrong(): string | undefined {
    return this.#wrong;
  }

  /** Takes note of an answer that breaks a promise. The first one counts. */
  isWrong(words: string): void {
    this.#wrong ??= words;
  }

  /** Whether an answer is the speech of the text. */
  hears(heard: Heard, text: string): boolean {
    if (!isSpeech(heard, text)) return false;
    this.served ??= { at: Date.now(), by: heard.gateway };
    return true;
  }

  /** Asks one gateway, the other one the next time. */
  ask(sent: Sent, hangUp?: HangUp): Promise<Heard> {
    this.requests += 1;
    const line = this.#lines[this.#turn++ % 2] as Pick<Line, 'ask'>;
    return line.ask(sent, this.#answerPatienceMs, hangUp);
  }

  /** Asks with a request that pays. */
  async pay(sent: Sent, hangUp?: HangUp): Promise<Heard> {
    const heard = await this.ask(sent, hangUp);
    const traceId = heard.headers['x-trace-id'];
    if (typeof traceId === 'string') this.traceIds.push(traceId);
    return heard;
  }

  /**
   * Repeats the identical request, at one gateway and the other in turn, until what it was told is the end.
   * @param read undefined while the end is not known
   * @returns undefined when that was not within the patience
   */
  async pursue<T>(
    ask: () => Promise<Heard>,
    read: (heard: Heard) => T | undefined | Promise<T | undefined>,
  ): Promise<T | undefined> {
    let pauseMs = SHORTEST_PAUSE_MS;
    for (const giveUpAt = performance.now() + PATIENCE_MS; performance.now() < giveUpAt; ) {
      const end = await read(await ask());
      if (end !== undefined) return end;
      await sleep(pauseMs);
      pauseMs = Math.min(2 * pauseMs, LONGEST_PAUSE_MS);
    }
    return undefined;
  }
}

/** The members of a structured error that callers go by; undefined where the answer is none, or is not whole. */
export function errorOf(
  heard: Heard,
): { readonly code: string; readonly details: Record<string, unknown> } | undefined {
  const { error } = jsonOf(heard) ?? {};
  if (typeof error !== 'object' || error === null) return undefined;
  const { code, details } = error as { code?: unknown; details?: unknown };
  return { code: String(code), details: (details ?? {}) as Record<string, unknown> };
}

/** The object in the body of a whole answer. */
export function jsonOf({ isWhole, body }: Heard): Record<string, unknown> | undefined {
  if (!isWhole) return undefined;
  try {
    return JSON.parse(body.toString());
  } catch {
    return undefined;
  }
}

/**
 * Whether the same request may be answered otherwise later. A process that stood still may say 408 of a request that it
 * has not read yet: nothing was begun for it, and it may be repeated (RFC 9110 15.5.9).
 */
export const isPassing = ({ status, isWhole }: Heard): boolean =>
  !isWhole || status >= 500 || status === 429 || status === 408;
