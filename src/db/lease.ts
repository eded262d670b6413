/** For payments, jobs and reconcilers' turns. */
export const LEASE_SECONDS = 15;

const TICK_MS = 1_000;

interface LeaseRenewerOptions<T> {
  readonly seconds: number;
  keyOf(item: T): string;
  /** Extends leases by `seconds` from now. Returns the keys of those that this process still owns. */
  renew(items: readonly T[]): Promise<ReadonlySet<string>>;
}

interface HeldLease {
  /** Monotonic time just before the lease was last requested, so this process gives it up too early rather than too late. */
  renewedAt: number;
  readonly onLost: () => void;
}

/**
 * Renews the leases of this process:
 *
 *     first third   nothing, because most work ends by then
 *     second third  renewed in a batch; a failure is retried
 *     last third    lost: `onLost` is called, and the owner has this long to stop
 */
export class LeaseRenewer<T> {
  readonly #options: LeaseRenewerOptions<T>;
  readonly #kept = new Map<T, HeldLease>();
  #timer: NodeJS.Timeout | undefined;
  #isRenewing = false;

  constructor(options: LeaseRenewerOptions<T>) {
    this.#options = options;
  }

  get seconds(): number {
    return this.#options.seconds;
  }

  /** Keeps the lease until the returned function is called. @param takenAt `performance.now()` when it was requested */
  keep(item: T, takenAt: number, onLost: () => void = () => {}): () => void {
    this.#kept.set(item, { renewedAt: takenAt, onLost });
    this.#timer ??= setInterval(() => this.#tick(), TICK_MS);
    return () => this.#forget(item);
  }

  /** Whether no other process can have the lease yet, even if this process was frozen. */
  ownsLease(item: T): boolean {
    const kept = this.#kept.get(item);
    return kept !== undefined && performance.now() - kept.renewedAt < this.#options.seconds * 1000;
  }

  #forget(item: T): void {
    this.#kept.delete(item);
    if (this.#kept.size > 0) return;
    clearInterval(this.#timer);
    this.#timer = undefined;
  }

  #lose(item: T, { onLost }: HeldLease): void {
    this.#forget(item);
    onLost();
  }

  #tick(): void {
    const now = performance.now();
    const thirdMs = (this.#options.seconds * 1000) / 3;
    const due: T[] = [];
    for (const [item, kept] of this.#kept) {
      if (now - kept.renewedAt >= 2 * thirdMs) this.#lose(item, kept);
      else if (now - kept.renewedAt >= thirdMs) due.push(item);
    }
    if (due.length > 0 && !this.#isRenewing) this.#renew(due, now);
  }

  async #renew(due: readonly T[], startedAt: number): Promise<void> {
    this.#isRenewing = true;
    try {
      const renewed = await this.#options.renew(due);
      for (const item of due) {
        const kept = this.#kept.get(item);
        if (!kept) continue;
        if (renewed.has(this.#options.keyOf(item))) kept.renewedAt = startedAt;
        else this.#lose(item, kept);
      }
    } catch {
      // The next tick retries, until the last third.
    } finally {
      this.#isRenewing = false;
    }
  }
}
