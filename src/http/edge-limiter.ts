import { addressKey } from '../limits/address-key.ts';
import type { Slot } from '../limits/slot.ts';

const WINDOW_SECONDS = 60;
const WINDOW_MS = WINDOW_SECONDS * 1000;
/** Beyond this many clients within a minute the oldest count is dropped: some 20 MB. */
const MAX_CLIENTS = 100_000;

/** Beyond its limit, how many requests of a client may show a credential at a time while none has verified. */
const MAX_TRIALS = 4;

/** What the last credential that a client has shown within its minute turned out to be. */
export type Credential = 'verified' | 'failed';

interface Count {
  taken: number;
  readonly endsAt: number;
  shown?: Credential;
  /** Requests beyond the limit whose credential is being looked at. */
  trials: number;
}

/** A request beyond the limit that may show a credential. Whoever gets it ends it, once its end is known. */
export interface Trial {
  /** Only the first end counts. Undefined when the credential could not be judged. */
  end(shown: Credential | undefined): void;
}

/**
 * The edge's limit: a client's requests within a minute that starts with its first one, counted in this process.
 *
 * @fastify/rate-limit is not used: key, headers and answer are those of the persistent limit, and what would be left of
 * the plugin is a map that goes by the wall clock.
 */
export class EdgeLimiter {
  /** In the order in which the minutes end, since all of them are equally long. */
  readonly #counts = new Map<string, Count>();
  readonly #max: number;
  readonly #maxClients: number;

  constructor(max: number, maxClients = MAX_CLIENTS) {
    this.#max = max;
    this.#maxClients = maxClients;
  }

  /** Clients that are being counted. */
  get size(): number {
    return this.#counts.size;
  }

  /** Counts a request of the client with this address. @param now monotonic milliseconds */
  take(address: string, now = performance.now()): Slot {
    this.#forgetEnded(now);
    const key = addressKey(address);
    const count = this.#counts.get(key) ?? this.#begin(key, now);
    const allowed = count.taken < this.#max;
    if (allowed) count.taken += 1;
    return {
      scope: 'edge',
      allowed,
      limit: this.#max,
      windowSeconds: WINDOW_SECONDS,
      remaining: this.#max - count.taken,
      resetSeconds: Math.ceil((count.endsAt - now) / 1000),
    };
  }

  /** Takes back the count of a request whose credential verified. */
  giveBack(address: string): void {
    const count = this.#counts.get(addressKey(address));
    if (!count) return;
    if (count.taken > 0) count.taken -= 1;
    count.shown = 'verified';
  }

  /** Remembers for the rest of the client's minute what its credential turned out to be. */
  remember(address: string, shown: Credential): void {
    const count = this.#counts.get(addressKey(address));
    if (count) count.shown = shown;
  }

  /**
   * Lets a client beyond its limit show a credential that may take the request from it, so far as the client's last one
   * did not fail: looking at one costs more than refusing. Undefined when it may not.
   */
  beginTrial(address: string): Trial | undefined {
    const count = this.#counts.get(addressKey(address));
    if (!count || count.shown === 'failed') return undefined;
    if (count.shown === undefined && count.trials >= MAX_TRIALS) return undefined;
    count.trials += 1;
    let isOver = false;
    return {
      end: (shown) => {
        if (isOver) return;
        isOver = true;
        count.trials -= 1;
        if (shown) count.shown = shown;
      },
    };
  }

  #begin(key: string, now: number): Count {
    if (this.#counts.size >= this.#maxClients) this.#forgetOldest();
    const count: Count = { taken: 0, endsAt: now + WINDOW_MS, trials: 0 };
    this.#counts.set(key, count);
    return count;
  }

  #forgetEnded(now: number): void {
    for (const [key, { endsAt }] of this.#counts) {
      if (endsAt > now) return;
      this.#counts.delete(key);
    }
  }

  #forgetOldest(): void {
    for (const key of this.#counts.keys()) {
      this.#counts.delete(key);
      return;
    }
  }
}
