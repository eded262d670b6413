import { WorkTally } from './work-tally.ts';

export interface WorkLimits {
  /** For how long unpaid work counts. */
  readonly windowMs: number;
  /** With this much of it, a key is held to one synthesis at a time. */
  readonly maxUnpaidMs: number;
  /** How much of it a paid synthesis makes good. */
  readonly regainedMs: number;
  /** Syntheses of one key that run at once. */
  readonly maxRunning: number;
}

/** Why no further synthesis of a key may begin now. */
type WorkRefusal = 'too_many_at_once' | 'one_at_a_time_while_unpaid';

/** What a synthesis came to. */
export type WorkEnd = 'paid' | 'unpaid' | 'not begun';

/** Ends what was begun. Only the first call counts. */
export type EndWork = (as: WorkEnd) => void;

export interface BegunWork {
  readonly outcome: 'begun';
  readonly end: EndWork;
}

export interface RefusedWork {
  readonly outcome: 'refused';
  readonly reason: WorkRefusal;
}

const WINDOW_MS = 3_600_000;
/** Unpaid syntheses of the longest kind, one after the other, that lead to one at a time. */
const MAX_UNPAID_SYNTHESES = 8;
/** Far above what one caller needs: at a second each, as many requests a second. */
const MAX_RUNNING = 256;
/** Keys with unpaid work that are remembered, the latest ones: some 30 MB. */
const MAX_KEYS = 100_000;

/** The limits of one key, where a synthesis takes at most so long. */
export const workLimits = (longestSynthesisMs: number): WorkLimits => ({
  windowMs: WINDOW_MS,
  maxUnpaidMs: MAX_UNPAID_SYNTHESES * longestSynthesisMs,
  regainedMs: longestSynthesisMs,
  maxRunning: MAX_RUNNING,
});

/**
 * Bounds the work that the speech provider does for one payer without being paid, in this process. Payment follows the
 * audio, so a synthesis that fails late, such as by running into its deadline, is work for nothing. Once a key has lost
 * enough of it, it has one synthesis at a time: no outage of the provider locks anybody out, and nobody can have the
 * provider work for nothing without end. Each paid synthesis makes one of the longest good, and the window the rest.
 *
 * As long as nothing is lost, what runs is trusted, however much it is.
 */
export class UnpaidWork {
  readonly #limits: WorkLimits;
  readonly #maxKeys: number;
  /** Keys with a synthesis that runs: as many as there are requests. */
  readonly #running = new Map<string, WorkTally>();
  /** Other keys that have lost work, in the order in which their last synthesis ended. */
  readonly #remembered = new Map<string, { readonly tally: WorkTally; readonly until: number }>();

  constructor(limits: WorkLimits, maxKeys = MAX_KEYS) {
    this.#limits = limits;
    this.#maxKeys = maxKeys;
  }

  /** Keys that are known. */
  get size(): number {
    return this.#running.size + this.#remembered.size;
  }

  /** Begins a synthesis of the key, or tells why there can be none now. */
  begin(key: string): BegunWork | RefusedWork {
    const startedAt = performance.now();
    const tally = this.#running.get(key) ?? this.#remembered.get(key)?.tally ?? new WorkTally(this.#limits.windowMs);
    const refusal = this.#refusal(tally, startedAt);
    if (refusal) return { outcome: 'refused', reason: refusal };
    this.#remembered.delete(key);
    this.#running.set(key, tally);
    tally.begin(startedAt);
    let isOpen = true;
    const end: EndWork = (as) => {
      if (!isOpen) return;
      isOpen = false;
      this.#end(key, tally, startedAt, as);
    };
    return { outcome: 'begun', end };
  }

  #refusal(tally: WorkTally, now: number): WorkRefusal | undefined {
    const { maxRunning, maxUnpaidMs } = this.#limits;
    if (tally.running >= maxRunning) return 'too_many_at_once';
    if (tally.running === 0) return undefined;
    const lostMs = tally.lostMs(now);
    return lostMs > 0 && lostMs + tally.runningMs(now) >= maxUnpaidMs ? 'one_at_a_time_while_unpaid' : undefined;
  }

  #end(key: string, tally: WorkTally, startedAt: number, end: WorkEnd): void {
    const { windowMs, regainedMs } = this.#limits;
    const now = performance.now();
    tally.end(startedAt);
    if (end === 'unpaid') tally.lose(now - startedAt, now);
    if (end === 'paid') tally.regain(regainedMs);
    if (tally.running > 0) return;
    this.#running.delete(key);
    if (tally.lostMs(now) > 0) this.#remember(key, tally, now + windowMs);
  }

  #remember(key: string, tally: WorkTally, until: number): void {
    const now = until - this.#limits.windowMs;
    for (const [oldest, remembered] of this.#remembered) {
      if (remembered.until > now && this.#remembered.size < this.#maxKeys) break;
      this.#remembered.delete(oldest);
    }
    this.#remembered.set(key, { tally, until });
  }
}
