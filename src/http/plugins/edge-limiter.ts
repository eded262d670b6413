import rateLimit, { type FastifyRateLimitStore } from '@fastify/rate-limit';
import type { FastifyInstance, FastifyRequest } from 'fastify';
import type { Slot } from '../../payments/limits/rolling-window.ts';

const MINUTE_MS = 60_000;
/** With more clients per minute the oldest is dropped, which bounds memory to about 20 MB. */
const MAX_CLIENTS = 100_000;
/** Concurrent credential checks per client over its limit, while none has verified. */
const MAX_TRIALS = 4;

export type Credential = 'verified' | 'failed';

interface Minute {
  /** Counted requests, without refused ones. */
  taken: number;
  readonly endsAt: number;
  shown?: Credential;
  trials: number;
}

/**
 * The store for @fastify/rate-limit, with bounded memory and a monotonic clock. The plugin's own store uses wall time:
 * if that is set back by an hour, it refuses a client for an hour.
 */
export class EdgeMinutes {
  /** Sorted by end, since all minutes have equal length. */
  readonly #minutes = new Map<string, Minute>();
  readonly #maxClients: number;
  readonly #now: () => number;

  /** @param now monotonic milliseconds */
  constructor(maxClients = MAX_CLIENTS, now = () => performance.now()) {
    this.#maxClients = maxClients;
    this.#now = now;
  }

  get size(): number {
    return this.#minutes.size;
  }

  find(key: string): Minute | undefined {
    return this.#minutes.get(key);
  }

  /** Counts a request as the plugin expects: `ttl` is in ms, and `current` over `max` is a refusal. */
  incr: FastifyRateLimitStore['incr'] = (key, callback, _timeWindow, max) => {
    const now = this.#now();
    for (const [ended, { endsAt }] of this.#minutes) {
      if (endsAt > now) break;
      this.#minutes.delete(ended);
    }
    const minute = this.#minutes.get(key) ?? this.#begin(key, now);
    const current = minute.taken + 1;
    if (current <= max) minute.taken = current;
    callback(null, { current, ttl: minute.endsAt - now });
  };

  #begin(key: string, now: number): Minute {
    const [oldest] = this.#minutes.keys();
    if (oldest !== undefined && this.#minutes.size >= this.#maxClients) this.#minutes.delete(oldest);
    const minute: Minute = { taken: 0, endsAt: now + MINUTE_MS, trials: 0 };
    this.#minutes.set(key, minute);
    return minute;
  }
}

/** A request over the limit that may show a credential. Only the first `end` counts; undefined means not judged. */
export interface CredentialCheck {
  end(shown: Credential | undefined): void;
}

/**
 * A one-minute window per client in this process, before the persistent one (R39). Requests can be uncounted, and
 * credentials shown over the limit.
 */
export class EdgeLimiter {
  readonly #count: ReturnType<FastifyInstance['createRateLimit']>;
  readonly #minutes: EdgeMinutes;

  private constructor(count: ReturnType<FastifyInstance['createRateLimit']>, minutes: EdgeMinutes) {
    this.#count = count;
    this.#minutes = minutes;
  }

  static async on(app: FastifyInstance, max: number, minutes = new EdgeMinutes()): Promise<EdgeLimiter> {
    await app.register(rateLimit, {
      global: false,
      max,
      timeWindow: MINUTE_MS,
      keyGenerator: ({ client }) => client,
      store: storeOf(minutes),
    });
    return new EdgeLimiter(app.createRateLimit(), minutes);
  }

  async take(request: FastifyRequest): Promise<Slot> {
    const count = await this.#count(request);
    if (count.isAllowed) throw new Error('@fastify/rate-limit exempts a client, although no client may be exempt');
    return {
      scope: 'edge',
      allowed: !count.isExceeded,
      limit: count.max,
      windowSeconds: count.timeWindow / 1000,
      remaining: count.remaining,
      resetSeconds: count.ttlInSeconds,
    };
  }

  uncount(client: string): void {
    const minute = this.#minutes.find(client);
    if (minute && minute.taken > 0) minute.taken -= 1;
  }

  remember(client: string, shown: Credential): void {
    const minute = this.#minutes.find(client);
    if (minute) minute.shown = shown;
  }

  /** Lets a client over its limit show a credential, unless its last one failed: a check costs more than a refusal. */
  beginCredentialCheck(client: string): CredentialCheck | undefined {
    const minute = this.#minutes.find(client);
    if (!minute || minute.shown === 'failed') return undefined;
    if (minute.shown === undefined && minute.trials >= MAX_TRIALS) return undefined;
    minute.trials += 1;
    let isOver = false;
    return {
      end: (shown) => {
        if (isOver) return;
        isOver = true;
        minute.trials -= 1;
        if (shown) minute.shown = shown;
      },
    };
  }
}

/** The plugin constructs its store itself. */
const storeOf = (minutes: EdgeMinutes) =>
  class {
    readonly incr = minutes.incr;
    readonly child = () => this;
  };
