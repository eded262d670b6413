import { addressKey } from '../limits/address-key.ts';
import type { Slot } from '../limits/slot.ts';

const WINDOW_SECONDS = 60;
const WINDOW_MS = WINDOW_SECONDS * 1000;
/** Beyond this many clients within a minute the oldest count is dropped: some 20 MB. */
const MAX_CLIENTS = 100_000;

interface Count {
  taken: number;
  readonly endsAt: number;
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

  /** Takes back the count of a request that turned out not to be counted. */
  giveBack(address: string): void {
    const count = this.#counts.get(addressKey(address));
    if (count && count.taken > 0) count.taken -= 1;
  }

  #begin(key: string, now: number): Count {
    if (this.#counts.size >= this.#maxClients) this.#forgetOldest();
    const count = { taken: 0, endsAt: now + WINDOW_MS };
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
