import type { FastifyReply, FastifyRequest } from 'fastify';
import fp from 'fastify-plugin';
import type { RateLimitTerms } from '../../contract/routes.ts';
import type { Bucket } from '../../db/rate-window.ts';
import { counted } from '../../lib/counted.ts';
import type { Metrics } from '../../observability/metrics.ts';
import type { AttemptLimit, PendingSlot, RollingWindow, Slot } from '../../payments/limits/rolling-window.ts';
import { failure, RequestRefused } from '../structured-error.ts';
import type { CredentialCheck, EdgeLimiter } from './edge-limiter.ts';

declare module 'fastify' {
  interface FastifyRequest {
    rateLimits: RateLimits;
  }
}

/** Counts every request at the edge, and gives operations the limits of their route as `request.rateLimits`. */
export const rateLimits = fp<RateLimitParts>(async (app, parts) => {
  app.decorateRequest('rateLimits');
  app.addHook('onRequest', async (request, reply) => {
    const entered = await RateLimits.enter(parts, request, reply);
    if (reply.sent) return reply;
    if (!(entered instanceof RateLimits)) throw new RequestRefused(entered);
    request.rateLimits = entered;
  });
});

export interface Windows {
  readonly requests: RollingWindow;
  readonly purchases: RollingWindow | undefined;
}

export interface RateLimitParts {
  readonly limiter: EdgeLimiter;
  readonly windows: Windows;
  readonly failures: AttemptLimit;
  readonly metrics: Metrics;
}

type WindowKey = NonNullable<RateLimitTerms['window']>['by'];
type WindowReason = NonNullable<RateLimitTerms['window']>['when'][number];

export type RateLimited = ReturnType<typeof rateLimited>;

function rateLimited({ scope, limit, windowSeconds, resetSeconds }: Slot) {
  const details = { scope, limit, windowSeconds, retryAfterSeconds: resetSeconds };
  const message = `The rate limit of ${counted(limit, 'request')} within ${counted(windowSeconds, 'second')} is reached. Retry in ${counted(resetSeconds, 'second')}. This request was not charged.`;
  return { ...failure('RATE_LIMITED', message, details), headers: { 'retry-after': resetSeconds } };
}

/** The rate-limit slot of a request, taken once: by the statement that places its hold, or separately. */
export interface RequestSlot extends PendingSlot {
  /** Returns the refusal if the slot was refused; takes the slot if nothing has taken it. */
  refusal(): Promise<RateLimited | undefined>;
}

/**
 * Takes one request through the rate limits (R48): the edge's, of this process, and the persistent window, of all. The
 * plugin counts it at the edge (`enter`). Over the edge's limit, operations.ts requires a valid credential
 * (`requireCredential`). The operation then takes slots of its window at the steps that `x-rate-limits` of the contract
 * names. Every refusal is the response: nothing else is done.
 */
export class RateLimits {
  readonly #parts: RateLimitParts;
  readonly #request: FastifyRequest;
  readonly #reply: FastifyReply;
  readonly #terms: RateLimitTerms | undefined;
  #overLimit: { readonly slot: Slot; readonly check: CredentialCheck } | undefined;
  #isCounted = false;

  private constructor(parts: RateLimitParts, request: FastifyRequest, reply: FastifyReply) {
    this.#parts = parts;
    this.#request = request;
    this.#reply = reply;
    this.#terms = request.routeOptions.config?.contract?.rateLimits;
  }

  /** Counts a request at the edge. Preflights are free. */
  static async enter(
    parts: RateLimitParts,
    request: FastifyRequest,
    reply: FastifyReply,
  ): Promise<RateLimits | RateLimited> {
    const rateLimits = new RateLimits(parts, request, reply);
    return (await rateLimits.#countAtEdge()) ?? rateLimits;
  }

  /** The refusal of a request over the edge's limit that can't show a credential any more; undefined within the limit. */
  refuseIfOverLimit(): RateLimited | undefined {
    if (!this.#overLimit) return undefined;
    const { slot, check } = this.#overLimit;
    this.#overLimit = undefined;
    check.end('failed');
    return this.#refuseAtEdge(slot);
  }

  /** Refuses a client over the edge's limit without a valid credential. @param isValid throws if that is unknown now */
  async requireCredential(isValid: () => Promise<boolean>): Promise<RateLimited | undefined> {
    if (!this.#overLimit) return undefined;
    const { check } = this.#overLimit;
    try {
      if (!(await isValid())) return this.refuseIfOverLimit();
    } catch (error) {
      // An internal failure says nothing about the client.
      check.end(undefined);
      this.#overLimit = undefined;
      throw error;
    }
    check.end('verified');
    this.#overLimit = undefined;
    return undefined;
  }

  /** @param key the account or `sig` that the window is keyed by; without one the address counts */
  async take(reason: 'request' | 'payment', key?: string): Promise<RateLimited | undefined> {
    return this.#show(await this.#takeSlot(this.#windowFor(reason), key));
  }

  /** A slot that the statement of the hold may take. @param key as for `take` */
  pendingSlot(key?: string): RequestSlot {
    const by = this.#windowFor('request');
    let isTaken = false;
    let refusal: RateLimited | undefined;
    const record = (slot: Slot) => {
      isTaken = true;
      refusal = this.#show(slot);
      return slot.allowed;
    };
    const takeOnce = async (account: string | undefined) => {
      if (!isTaken) record(await this.#takeSlot(by, account));
      return refusal;
    };
    return {
      record,
      refusal: () => takeOnce(key),
      take: async () => (await takeOnce(key)) === undefined,
      takeOfAddress: async () => (await takeOnce(undefined)) === undefined,
    };
  }

  /** Takes a slot of the window for a credential that is not valid, and remembers it at the edge (R48). */
  async takeForFailedCredential(): Promise<RateLimited | undefined> {
    const by = this.#windowFor('failed-credential');
    this.rememberFailedCredential();
    return this.#show(await this.#takeSlot(by));
  }

  /** Over its limit, the edge lets no further credential of this client be checked for a while. */
  rememberFailedCredential(): void {
    this.#parts.limiter.remember(this.#request.client, 'failed');
  }

  /** Uncounts the request at the edge, if the edge counts only requests without a valid credential. */
  uncountVerified(): void {
    const { limiter } = this.#parts;
    limiter.remember(this.#request.client, 'verified');
    if (this.#terms?.edge !== 'unless-verified' || !this.#isCounted) return;
    this.#isCounted = false;
    limiter.uncount(this.#request.client);
  }

  /** Begins a payment that takes a slot unless `succeed` was called before `close`. */
  async attempt(): Promise<{ succeed(): void; close(): Promise<void> } | RateLimited> {
    this.#windowFor('failed-payment');
    const attempt = await this.#parts.failures.begin(this.#addressBucket('ip'));
    this.#show(attempt.slot);
    if (attempt.outcome === 'refused') return rateLimited(attempt.slot);
    return {
      succeed: attempt.succeed,
      close: async () => {
        const slot = await attempt.fail();
        if (slot) this.#show(slot);
      },
    };
  }

  async #countAtEdge(): Promise<RateLimited | undefined> {
    const { method, headers, client } = this.#request;
    if (method === 'OPTIONS' && headers['access-control-request-method'] !== undefined) return undefined;
    const slot = await this.#parts.limiter.take(this.#request);
    this.#isCounted = slot.allowed;
    if (slot.allowed) return undefined;
    const credential = this.#terms?.credential;
    const showsCredential = credential !== undefined && headers[credential] !== undefined;
    const check = showsCredential ? this.#parts.limiter.beginCredentialCheck(client) : undefined;
    if (!check) return this.#refuseAtEdge(slot);
    this.#overLimit = { slot, check };
    // Only the first end counts, so this is for a request that ended before its credential was judged.
    this.#reply.raw.once('close', () => check.end('failed'));
    return undefined;
  }

  #refuseAtEdge(slot: Slot): RateLimited {
    this.#parts.metrics.rateLimitRefused(slot.scope);
    this.#show(slot);
    return rateLimited(slot);
  }

  /** Sets the rate-limit headers to the last checked bucket (R39). Returns the refusal, if it is one. */
  #show(slot: Slot): RateLimited | undefined {
    this.#reply.headers({
      'x-ratelimit-limit': String(slot.limit),
      'x-ratelimit-policy': `${slot.limit};w=${slot.windowSeconds}`,
      'x-ratelimit-remaining': String(slot.remaining),
      'x-ratelimit-reset': String(slot.resetSeconds),
      'x-ratelimit-scope': slot.scope,
    });
    return slot.allowed ? undefined : rateLimited(slot);
  }

  #windowFor(reason: WindowReason): WindowKey {
    const window = this.#terms?.window;
    if (!window?.when.includes(reason))
      throw new Error(`x-rate-limits of this operation does not name ${reason}, which needs a slot`);
    return window.by;
  }

  #takeSlot(by: WindowKey, key?: string): Promise<Slot> {
    const { requests, purchases } = this.#parts.windows;
    switch (by) {
      case 'account':
        return requests.takeForAccount(key, this.#addressBucket('ip'));
      case 'audio':
        return requests.take(key === undefined ? this.#addressBucket('ip') : { scope: 'audio', key });
      case 'top-up':
        if (!purchases) throw new Error('card credit is off, so purchases of credit have no rate limit');
        return purchases.take(this.#addressBucket('top-up'));
      default:
        return requests.take(this.#addressBucket(by));
    }
  }

  /** An address has one bucket for metered speech without an account, and one for feedback (R48). */
  #addressBucket(scope: Bucket['scope']): Bucket {
    return { scope, key: this.#request.client };
  }
}
