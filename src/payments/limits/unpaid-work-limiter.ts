import type { WorkLimits } from '../../config/work-limits.ts';

const STEPS = 60;

/** Upstream work in milliseconds: running work, and work lost within a window. */
export class WorkTally {
  readonly #stepMs: number;
  readonly #windowMs: number;
  #running = 0;
  #startedAtSum = 0;
  readonly #steps: { readonly number: number; ms: number }[] = [];
  #lostMs = 0;

  constructor(windowMs: number) {
    this.#windowMs = windowMs;
    this.#stepMs = windowMs / STEPS;
  }

  get running(): number {
    return this.#running;
  }

  /** @param now monotonic milliseconds, here and below */
  begin(now: number): void {
    this.#running += 1;
    this.#startedAtSum += now;
  }

  end(startedAt: number): void {
    this.#running -= 1;
    this.#startedAtSum = this.#running === 0 ? 0 : this.#startedAtSum - startedAt;
  }

  runningMs(now: number): number {
    return this.#running * now - this.#startedAtSum;
  }

  lose(ms: number, now: number): void {
    const number = Math.floor(now / this.#stepMs);
    const last = this.#steps.at(-1);
    if (last?.number === number) last.ms += ms;
    else this.#steps.push({ number, ms });
    this.#lostMs += ms;
    this.#forget(now);
  }

  regain(ms: number): void {
    for (let left = ms; left > 0 && this.#steps[0]; ) {
      const part = Math.min(left, this.#steps[0].ms);
      this.#steps[0].ms -= part;
      this.#lostMs -= part;
      left -= part;
      if (this.#steps[0].ms <= 0) this.#steps.shift();
    }
  }

  lostMs(now: number): number {
    this.#forget(now);
    return this.#steps.length === 0 ? 0 : this.#lostMs;
  }

  #forget(now: number): void {
    for (let first = this.#steps[0]; first; first = this.#steps[0]) {
      if (first.number * this.#stepMs + this.#windowMs > now) return;
      this.#steps.shift();
      this.#lostMs = this.#steps.length === 0 ? 0 : this.#lostMs - first.ms;
    }
  }
}

type WorkRefusal = 'too_many_at_once' | 'one_at_a_time_while_unpaid';

export type WorkEnd = 'paid' | 'unpaid' | 'not begun';

export type EndWork = (as: WorkEnd) => void;

const MAX_KEYS = 100_000;

/**
 * Bounds the unpaid upstream work per key, in this process. Payment follows the audio, so a synthesis that fails late
 * is lost work. A key that has lost too much may run one synthesis at a time. A paid synthesis reduces the lost work
 * by the time of one longest synthesis, and the rest expires with the window. While nothing is lost, running work is
 * not limited by time.
 */
export class UnpaidWorkLimiter {
  readonly #limits: WorkLimits;
  readonly #maxKeys: number;
  readonly #running = new Map<string, WorkTally>();
  readonly #remembered = new Map<string, { readonly tally: WorkTally; readonly until: number }>();

  constructor(limits: WorkLimits, maxKeys = MAX_KEYS) {
    this.#limits = limits;
    this.#maxKeys = maxKeys;
  }

  get size(): number {
    return this.#running.size + this.#remembered.size;
  }

  begin(
    key: string,
  ): { readonly outcome: 'begun'; readonly end: EndWork } | { readonly outcome: 'refused'; reason: WorkRefusal } {
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
