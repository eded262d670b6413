/** What was lost is forgotten in steps of this part of the window. */
const STEPS = 60;

/**
 * Milliseconds of upstream work: of what runs, and of what was lost within a window. Nothing here grows with the number
 * of either: what runs is a count and a sum, what was lost a sum for each step of the window.
 */
export class WorkTally {
  readonly #stepMs: number;
  readonly #windowMs: number;
  #running = 0;
  #startedAtSum = 0;
  /** Oldest first, at most `STEPS` and one. */
  readonly #steps: { readonly number: number; ms: number }[] = [];
  #lostMs = 0;

  constructor(windowMs: number) {
    this.#windowMs = windowMs;
    this.#stepMs = windowMs / STEPS;
  }

  /** How many run. */
  get running(): number {
    return this.#running;
  }

  /** @param now monotonic milliseconds, here and below */
  begin(now: number): void {
    this.#running += 1;
    this.#startedAtSum += now;
  }

  /** Ends one that was begun at that time. */
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

  /** Takes so much of what was lost as made good, the oldest first. */
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
