import type { IncomingHttpHeaders, IncomingMessage, RequestListener, ServerResponse } from 'node:http';
import type { FastifyBaseLogger } from 'fastify';
import type { Route } from '../contract/routes.ts';
import type { WorkInProgress } from '../lib/work-in-progress.ts';
import type { Metrics, ShedClass, ShedReason } from '../observability/metrics.ts';
import { LoopTurn } from './loop-turn.ts';
import { writeOverloaded } from './overload-answer.ts';
import { RefusalPace } from './refusal-pace.ts';

/** How much a process works on at a time. */
export interface OverloadBounds {
  /** Active requests at which the next one is refused, while they come and go in bursts. */
  readonly burst: number;
  /** Likewise, once so many have been there all the time: more would only wait longer. */
  readonly standing: number;
  /** All requests, those included that wait for others. */
  readonly most: number;
}

interface OverloadParts {
  readonly routes: readonly Route[];
  readonly inProgress: WorkInProgress;
  readonly overloadBounds: OverloadBounds;
  readonly metrics: Metrics;
  readonly logger: FastifyBaseLogger;
}

export const OVERLOAD_BOUNDS: OverloadBounds = { burst: 2_048, standing: 320, most: 8_192 };

/** Requests that nobody has paid for are refused at this share of a bound. */
const UNPAID_SHARE = 0.5;
/** As many are there all the time when there were never fewer than this share of the bound. */
const STANDING_SHARE = 0.66;
const SAMPLE_MS = 50;
/** So many samples more that tell so than samples that don't; of them, so many are remembered. */
const STANDING_SAMPLES = 10;
const MOST_STANDING_SAMPLES = 20;
/** For so many samples after somebody was refused who pays, nobody is served who does not. */
const PAID_FIRST_SAMPLES = 20;
/** Of requests that are refused but for what was paid before, how many may look for that at a time. */
const MAX_LOOKUPS = 16;
const SUMMARY_MS = 1_000;

/** The headers that show a credential. */
const CREDENTIALS = ['x-credit-account', 'payment-signature', 'x-x402-signature'];
/** The headers that what was paid for before is repeated by. */
const REPEATS = ['payment-signature', 'x-x402-signature', 'idempotency-key'];

interface Sheddable {
  readonly operation: string;
  readonly credentials: readonly string[];
  readonly repeats: readonly string[];
}

/** The operations that may be refused are those whose 503 says so. */
export const isSheddable = (route: Route): boolean =>
  route.responses[503]?.errorCodes?.includes('TTS_UNAVAILABLE') ?? false;

/**
 * Refuses speech that this process can't begin in time, before anything is read or held. The bounds are of work in
 * progress, and of the event loop's turns:
 *
 *     no credential            refused at half of the bound, for a second after one with a credential was refused, or when
 *                              turns of the event loop take too long
 *     one like those that fail the first two, once the edge knows the address
 *     any other credential     refused at the bound
 *     what may have been paid  looked up even then, a few at a time; what is new is refused
 *
 * A refusal is written before Fastify sees the request: for each that is served at five times the load four are refused,
 * and may not cost what serves the fifth. So they are written at a pace, and have no line in the log each, only one a
 * second together.
 */
export class Overload {
  readonly #work: WorkInProgress;
  readonly #bounds: OverloadBounds;
  readonly #metrics: Metrics;
  readonly #log: FastifyBaseLogger;
  readonly #operations: ReadonlyMap<string, Sheddable>;
  readonly #turn = new LoopTurn();
  readonly #pace = new RefusalPace(writeOverloaded);
  /** Requests that are there to look up what was paid before. */
  readonly #lookups = new WeakSet<IncomingMessage>();
  #lookupsNow = 0;
  #sampling: NodeJS.Timeout | undefined;
  #standingSamples = 0;
  #paidFirstSamples = 0;
  #bound: number;
  #unpaidBound: number;
  readonly #mostUnpaid: number;
  #shed = { unpaid: 0, paid: 0, guess: 0, toldAt: 0 };

  constructor(parts: OverloadParts) {
    this.#work = parts.inProgress;
    this.#bounds = parts.overloadBounds;
    this.#metrics = parts.metrics;
    this.#log = parts.logger;
    this.#bound = parts.overloadBounds.burst;
    this.#unpaidBound = this.#bound * UNPAID_SHARE;
    this.#mostUnpaid = parts.overloadBounds.most * UNPAID_SHARE;
    this.#operations = new Map(
      parts.routes.filter(isSheddable).map(({ method, path, operationId, headers }) => [
        `${method} ${path}`,
        {
          operation: operationId,
          credentials: CREDENTIALS.filter((name) => headers.includes(name)),
          repeats: REPEATS.filter((name) => headers.includes(name)),
        },
      ]),
    );
  }

  /** Begins to look whether work stands. */
  start(): void {
    this.#sampling = setInterval(() => this.sample(), SAMPLE_MS).unref();
  }

  close(): void {
    clearInterval(this.#sampling);
    this.#pace.close();
  }

  /** Sets the bound: a low one once as many requests as that have been there for some samples. */
  sample(): void {
    const { standing, burst } = this.#bounds;
    const isFull = this.#work.takeLowest() >= standing * STANDING_SHARE;
    this.#standingSamples = isFull
      ? Math.min(MOST_STANDING_SAMPLES, this.#standingSamples + 1)
      : Math.max(0, this.#standingSamples - 1);
    this.#bound = this.#standingSamples >= STANDING_SAMPLES ? standing : burst;
    if (this.#paidFirstSamples > 0) this.#paidFirstSamples -= 1;
    this.#unpaidBound = this.#paidFirstSamples > 0 ? 0 : this.#bound * UNPAID_SHARE;
    this.#summarize();
  }

  /** What a server does with a request that there is no room for; the others are handed on. */
  before(onRequest: RequestListener): RequestListener {
    return (request, response) => {
      if (!this.#refuses(request, response)) onRequest(request, response);
    };
  }

  /** Whether a request is refused that shows a credential, and whose address has shown one last that failed. */
  refusesGuess({ method, path }: Route, headers: IncomingHttpHeaders, from: { readonly isGuess: boolean }): boolean {
    if (this.#work.active < this.#unpaidBound && this.#work.size < this.#mostUnpaid) return false;
    const operation = this.#operations.get(`${method} ${path}`);
    if (!operation || !showsOne(operation.credentials, headers) || !from.isGuess) return false;
    this.#count('guess', 'work');
    return true;
  }

  /** Counts a request as work in progress, unless it only looks up what was paid before. */
  follow<T>(request: IncomingMessage, work: Promise<T>): Promise<T> {
    return this.isLookup(request) ? work : this.#work.run(work);
  }

  /** Nothing new is begun for it: it may only learn what it has paid for before. */
  isLookup(request: IncomingMessage): boolean {
    return this.#lookupsNow > 0 && this.#lookups.has(request);
  }

  /** Refuses a request, or marks it as a lookup. */
  #refuses(request: IncomingMessage, response: ServerResponse): boolean {
    const { url = '', method } = request;
    const query = url.indexOf('?');
    const operation = this.#operations.get(`${method} ${query < 0 ? url : url.slice(0, query)}`);
    if (!operation) return false;
    const isLong = this.#turn.isLong();
    const { active, size } = this.#work;
    if (!isLong && active < this.#unpaidBound && size < this.#mostUnpaid) return false;
    const { headers } = request;
    if (!showsOne(operation.credentials, headers)) {
      this.#answer(response, operation.operation);
      this.#count('unpaid', isLong ? 'event_loop' : 'work');
      return true;
    }
    if (active < this.#bound && size < this.#bounds.most) return false;
    if (this.#lookupsNow < MAX_LOOKUPS && showsOne(operation.repeats, headers)) {
      this.#lookups.add(request);
      this.#lookupsNow += 1;
      response.once('close', () => {
        this.#lookupsNow -= 1;
      });
      return false;
    }
    this.#answer(response, operation.operation);
    this.#count('paid', 'work');
    this.#paidFirstSamples = PAID_FIRST_SAMPLES;
    this.#unpaidBound = 0;
    return true;
  }

  #answer(response: ServerResponse, operation: string): void {
    this.#pace.refuse(response);
    this.#metrics.requestEnded(operation, 503, 'answered', 0);
  }

  #count(shed: ShedClass, reason: ShedReason): void {
    this.#shed[shed] += 1;
    this.#metrics.shed(shed, reason);
  }

  #summarize(): void {
    const { toldAt, ...shed } = this.#shed;
    const now = performance.now();
    if (now - toldAt < SUMMARY_MS || shed.unpaid + shed.paid + shed.guess === 0) return;
    this.#shed = { unpaid: 0, paid: 0, guess: 0, toldAt: now };
    this.#log.warn({ shed, active: this.#work.active, inProgress: this.#work.size }, 'requests were refused: overload');
  }
}

const showsOne = (names: readonly string[], headers: IncomingHttpHeaders): boolean =>
  names.some((name) => headers[name] !== undefined);
