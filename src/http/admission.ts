import type { FastifyReply, FastifyRequest } from 'fastify';
import type { Admission as Terms } from '../contract/routes.ts';
import { addressKey } from '../limits/address-key.ts';
import type { AttemptLimit } from '../limits/attempt-limit.ts';
import type { Bucket, RollingWindow } from '../limits/rolling-window.ts';
import type { Slot } from '../limits/slot.ts';
import type { Metrics } from '../observability/metrics.ts';
import type { EdgeLimiter, Trial } from './edge-limiter.ts';
import { type RateLimited, rateLimited, rateLimitHeaders } from './rate-limit-answer.ts';
import { RequestSlot } from './request-slot.ts';

/** The persistent limits that operations count in (R39). */
export interface Windows {
  readonly requests: RollingWindow;
  /** Undefined where nothing can be bought. */
  readonly purchases: RollingWindow | undefined;
}

/** A payment under way that takes a slot only if it fails. What becomes of it is told once, by one of these. */
export interface Attempt {
  succeed(): void;
  /** Does nothing when the payment has succeeded. */
  fail(): Promise<void>;
}

/**
 * What an operation asks of the limits, once it knows enough of the request. Each refusal is the answer: nothing more
 * is done then. The contract says which of these an operation has (`x-admission`).
 */
export interface Ticket {
  /**
   * Takes a slot for the request, or for its payment.
   * @param key of the account, or the sig, where the window is by one and the request has it; otherwise the address counts
   */
  take(reason: 'request' | 'payment', key?: string): Promise<RateLimited | undefined>;
  /** The slot of a request that the statement may take which pays for it. @param key as of `take` */
  pendingSlot(key?: string): RequestSlot;
  /** Takes a slot for a credential that failed. */
  credentialFailed(): Promise<RateLimited | undefined>;
  /** Remembers for the client's minute that its credential is nobody's, where that takes no slot of its own. */
  credentialUnknown(): void;
  /** Takes a request from the edge's limit where that counts those without a credential that verifies. */
  credentialVerified(): void;
  /** Begins a payment that takes a slot if it fails. */
  attempt(): Promise<Attempt | RateLimited>;
}

/** Tells whether a request's credential verifies. Throws when that can't be known now. */
export type Proof = () => Promise<boolean> | undefined;

export interface AdmissionParts {
  readonly limiter: EdgeLimiter;
  readonly windows: Windows;
  readonly failures: AttemptLimit;
  readonly metrics: Metrics;
}

/**
 * The way of one request through the limits: the edge counts it (`enter`), beyond the edge's limit its credential has
 * to verify (`prove`), both called by http/server.ts, and the operation takes slots of its window (`Ticket`), at the step
 * that `x-admission` names: for the request, its payment, or a credential that failed. The answer's headers show the
 * bucket that was asked last.
 */
export class Admission implements Ticket {
  readonly #parts: AdmissionParts;
  readonly #request: FastifyRequest;
  readonly #reply: FastifyReply;
  readonly #terms: Terms | undefined;
  /** Beyond the edge's limit, until the credential has verified. */
  #beyond: { readonly slot: Slot; readonly trial: Trial } | undefined;
  #isCounted = false;

  private constructor(parts: AdmissionParts, request: FastifyRequest, reply: FastifyReply) {
    this.#parts = parts;
    this.#request = request;
    this.#reply = reply;
    this.#terms = request.routeOptions.config?.contract?.admission;
  }

  /** Counts a request at the edge. Preflights are free. */
  static async enter(
    parts: AdmissionParts,
    request: FastifyRequest,
    reply: FastifyReply,
  ): Promise<Admission | RateLimited> {
    const admission = new Admission(parts, request, reply);
    return (await admission.#countAtEdge()) ?? admission;
  }

  /** The edge's refusal of a request that can't show a credential any more; undefined within the edge's limit. */
  refuse(): RateLimited | undefined {
    if (!this.#beyond) return undefined;
    this.#beyond.trial.end('failed');
    return this.#refuseAtEdge(this.#beyond.slot);
  }

  /** Has a client beyond the edge's limit prove its credential; tells the edge's refusal if that does not verify. */
  async prove(proof: Proof): Promise<RateLimited | undefined> {
    if (!this.#beyond) return undefined;
    const { trial } = this.#beyond;
    try {
      if (!(await proof())) return this.refuse();
    } catch (error) {
      // What fails inside the service tells nothing of the client.
      trial.end(undefined);
      throw error;
    }
    trial.end('verified');
    this.#beyond = undefined;
    return undefined;
  }

  get address(): string {
    return this.#request.ip;
  }

  /** Whether the last credential that the address has shown within its minute failed. */
  get isGuess(): boolean {
    return this.#parts.limiter.lastShown(this.#request.ip) === 'failed';
  }

  async take(reason: 'request' | 'payment', key?: string): Promise<RateLimited | undefined> {
    const slot = await this.#takeSlot(this.#windowFor(reason), key);
    return this.#show(slot);
  }

  pendingSlot(key?: string): RequestSlot {
    const by = this.#windowFor('request');
    return new RequestSlot(
      () => this.#takeSlot(by, key),
      (slot) => this.#show(slot),
    );
  }

  async credentialFailed(): Promise<RateLimited | undefined> {
    const by = this.#windowFor('failed-credential');
    this.#parts.limiter.remember(this.#request.ip, 'failed');
    return this.#show(await this.#takeSlot(by));
  }

  credentialUnknown(): void {
    this.#parts.limiter.remember(this.#request.ip, 'failed');
  }

  credentialVerified(): void {
    const { limiter } = this.#parts;
    limiter.remember(this.#request.ip, 'verified');
    if (this.#terms?.edge !== 'unless-verified' || !this.#isCounted) return;
    this.#isCounted = false;
    limiter.uncount(this.#request.ip);
  }

  async attempt(): Promise<Attempt | RateLimited> {
    this.#windowFor('failed-payment');
    const attempt = await this.#parts.failures.begin(this.#addressBucket('ip'));
    this.#show(attempt.slot);
    if (attempt.outcome === 'refused') return rateLimited(attempt.slot);
    return {
      succeed: attempt.succeed,
      fail: async () => {
        const slot = await attempt.fail();
        if (slot) this.#show(slot);
      },
    };
  }

  async #countAtEdge(): Promise<RateLimited | undefined> {
    const { method, headers, ip } = this.#request;
    if (method === 'OPTIONS' && headers['access-control-request-method'] !== undefined) return undefined;
    const slot = await this.#parts.limiter.take(this.#request);
    this.#isCounted = slot.allowed;
    if (slot.allowed) return undefined;
    const credential = this.#terms?.credential;
    const showsCredential = credential !== undefined && headers[credential] !== undefined;
    const trial = showsCredential ? this.#parts.limiter.beginTrial(ip) : undefined;
    if (!trial) return this.#refuseAtEdge(slot);
    this.#beyond = { slot, trial };
    this.#reply.raw.once('close', () => trial.end('failed'));
    return undefined;
  }

  #refuseAtEdge(slot: Slot): RateLimited {
    this.#parts.metrics.rateLimitRefused(slot.scope);
    this.#show(slot);
    return rateLimited(slot);
  }

  /** Shows the state of a bucket in the answer's headers, whatever that answer will be; tells the refusal if it is one. */
  #show(slot: Slot): RateLimited | undefined {
    this.#reply.headers(rateLimitHeaders(slot));
    return slot.allowed ? undefined : rateLimited(slot);
  }

  #windowFor(reason: WindowReason): WindowKey {
    const window = this.#terms?.window;
    if (!window?.when.includes(reason)) throw new Error(`x-admission does not say that a ${reason} takes a slot`);
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
        if (!purchases) throw new Error('nothing can be bought, so that no purchase is counted');
        return purchases.take(this.#addressBucket('top-up'));
      default:
        return requests.take(this.#addressBucket(by));
    }
  }

  /** All metered speech from one address shares a bucket, unless an account pays for it; so does all feedback (R48). */
  #addressBucket(scope: Bucket['scope']): Bucket {
    return { scope, key: addressKey(this.#request.ip) };
  }
}

type WindowKey = NonNullable<Terms['window']>['by'];
type WindowReason = NonNullable<Terms['window']>['when'][number];
