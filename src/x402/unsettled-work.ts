/** Upstream work that is, or was within the last hour, done for payments that were not settled. */
const WINDOW_MS = 3_600_000;
/** With this much of it, no more is begun (R21b). */
const MAX_SECONDS = 1_800;

/**
 * Counts the seconds of upstream work whose payment is not settled: those of syntheses that run, and those that were
 * lost within the last hour because the settlement failed. Their number is bounded, so that payments that never settle
 * can't keep the speech provider busy without end.
 */
export class UnsettledWork {
  readonly #maxSeconds: number;
  readonly #running = new Set<number>();
  #lost: { at: number; ms: number }[] = [];

  constructor(maxSeconds = MAX_SECONDS) {
    this.#maxSeconds = maxSeconds;
  }

  get seconds(): number {
    const now = performance.now();
    this.#lost = this.#lost.filter(({ at }) => now - at < WINDOW_MS);
    const running = [...this.#running].reduce((sum, startedAt) => sum + now - startedAt, 0);
    return (running + this.#lost.reduce((sum, { ms }) => sum + ms, 0)) / 1000;
  }

  get isFull(): boolean {
    return this.seconds >= this.#maxSeconds;
  }

  /** Begins to count one synthesis; the returned function ends it and says whether its payment was settled. */
  begin(): (isSettled: boolean) => void {
    // A unique number: two may begin within the same tick.
    let startedAt = performance.now();
    while (this.#running.has(startedAt)) startedAt += 0.001;
    this.#running.add(startedAt);
    return (isSettled) => {
      if (!this.#running.delete(startedAt) || isSettled) return;
      const now = performance.now();
      this.#lost.push({ at: now, ms: now - startedAt });
    };
  }
}
