import rateLimit from '@fastify/rate-limit';
import type { FastifyInstance, FastifyRequest } from 'fastify';
import { addressKey } from '../limits/address-key.ts';
import type { Slot } from '../limits/slot.ts';
import { type Credential, EdgeMinutes, MINUTE_MS } from './edge-minutes.ts';

/** Beyond its limit, how many requests of a client may show a credential at a time while none has verified. */
const MAX_TRIALS = 4;

/** A request beyond the limit that may show a credential. Whoever gets it ends it, once its end is known. */
export interface Trial {
  /** Only the first end counts. Undefined when the credential could not be judged. */
  end(shown: Credential | undefined): void;
}

type Count = ReturnType<FastifyInstance['createRateLimit']>;

/**
 * The edge's limit: a client's requests within a minute that starts with its first one, counted in this process by
 * @fastify/rate-limit. What that lacks is here: counts are given back, and who is beyond the limit may show a credential.
 */
export class EdgeLimiter {
  readonly #count: Count;
  readonly #minutes: EdgeMinutes;

  private constructor(count: Count, minutes: EdgeMinutes) {
    this.#count = count;
    this.#minutes = minutes;
  }

  /** @param max requests per client and minute */
  static async on(app: FastifyInstance, max: number, minutes = new EdgeMinutes()): Promise<EdgeLimiter> {
    await app.register(rateLimit, {
      global: false,
      max,
      timeWindow: MINUTE_MS,
      keyGenerator: ({ ip }) => addressKey(ip),
      store: storeOf(minutes),
    });
    return new EdgeLimiter(app.createRateLimit(), minutes);
  }

  /** Counts a request of its client. */
  async take(request: FastifyRequest): Promise<Slot> {
    const count = await this.#count(request);
    if (count.isAllowed) throw new Error('a client is exempt from the limit, and none is meant to be');
    return {
      scope: 'edge',
      allowed: !count.isExceeded,
      limit: count.max,
      windowSeconds: count.timeWindow / 1000,
      remaining: count.remaining,
      resetSeconds: count.ttlInSeconds,
    };
  }

  /** Takes back the count of a request. */
  uncount(address: string): void {
    const minute = this.#minuteOf(address);
    if (minute && minute.taken > 0) minute.taken -= 1;
  }

  /** Remembers for the rest of the client's minute what its credential turned out to be. */
  remember(address: string, shown: Credential): void {
    const minute = this.#minuteOf(address);
    if (minute) minute.shown = shown;
  }

  /** What the client's last credential turned out to be within its minute. */
  lastShown(address: string): Credential | undefined {
    return this.#minuteOf(address)?.shown;
  }

  /**
   * Lets a client beyond its limit show a credential that may take the request from it, so far as the client's last one
   * did not fail: looking at one costs more than refusing. Undefined when it may not.
   */
  beginTrial(address: string): Trial | undefined {
    const minute = this.#minuteOf(address);
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

  #minuteOf(address: string) {
    return this.#minutes.find(addressKey(address));
  }
}

/** The plugin makes its store itself. */
const storeOf = (minutes: EdgeMinutes) =>
  class {
    readonly incr = minutes.incr;
    readonly child = () => this;
  };
