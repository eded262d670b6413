import type { FastifyRateLimitStore } from '@fastify/rate-limit';

export const MINUTE_MS = 60_000;
/** Beyond this many clients within a minute the oldest one's is dropped: some 20 MB. */
const MAX_CLIENTS = 100_000;

/** What the last credential that a client has shown within its minute turned out to be. */
export type Credential = 'verified' | 'failed';

/** What is known of a client within the minute that starts with its first request. */
export interface Minute {
  /** Requests that count: those that were refused don't. */
  taken: number;
  /** Monotonic milliseconds. */
  readonly endsAt: number;
  shown?: Credential;
  /** Requests beyond the limit whose credential is being looked at. */
  trials: number;
}

/**
 * The store behind @fastify/rate-limit: bounded in memory, and by a clock that nobody sets. By the plugin's own store,
 * which goes by the wall clock, a client would be refused for an hour when that is put back by one.
 */
export class EdgeMinutes {
  /** In the order in which the minutes end, since all of them are equally long. */
  readonly #minutes = new Map<string, Minute>();
  readonly #maxClients: number;
  readonly #now: () => number;

  /** @param now monotonic milliseconds */
  constructor(maxClients = MAX_CLIENTS, now = () => performance.now()) {
    this.#maxClients = maxClients;
    this.#now = now;
  }

  /** Clients that are being counted. */
  get size(): number {
    return this.#minutes.size;
  }

  find(key: string): Minute | undefined {
    return this.#minutes.get(key);
  }

  /** Counts a request, as the plugin asks for it: `ttl` are milliseconds, `current` beyond `max` is a refusal. */
  incr: FastifyRateLimitStore['incr'] = (key, callback, _timeWindow, max) => {
    const now = this.#now();
    this.#forgetEnded(now);
    const minute = this.#minutes.get(key) ?? this.#begin(key, now);
    const current = minute.taken + 1;
    if (current <= max) minute.taken = current;
    callback(null, { current, ttl: minute.endsAt - now });
  };

  #begin(key: string, now: number): Minute {
    if (this.#minutes.size >= this.#maxClients) this.#forgetOldest();
    const minute: Minute = { taken: 0, endsAt: now + MINUTE_MS, trials: 0 };
    this.#minutes.set(key, minute);
    return minute;
  }

  #forgetEnded(now: number): void {
    for (const [key, { endsAt }] of this.#minutes) {
      if (endsAt > now) return;
      this.#minutes.delete(key);
    }
  }

  #forgetOldest(): void {
    for (const key of this.#minutes.keys()) {
      this.#minutes.delete(key);
      return;
    }
  }
}
