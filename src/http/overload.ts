import type { IncomingHttpHeaders, IncomingMessage, RequestListener, ServerResponse } from 'node:http';
import type { FastifyBaseLogger } from 'fastify';
import type { Route } from '../contract/routes.ts';
import type { WorkInProgress } from '../lib/work-in-progress.ts';
import type { Metrics, ShedClass, ShedReason } from '../observability/metrics.ts';
import { tracing } from '../observability/tracing.ts';
import { type ConcurrencyBounds, ConcurrencyLimit } from './concurrency-limit.ts';
import { LoopTurn } from './loop-turn.ts';
import { writeOverloaded } from './overload-answer.ts';
import { RefusalPace } from './refusal-pace.ts';
import { pathAndQuery } from './target.ts';

/** How much a process works on at a time. */
export interface OverloadBounds extends ConcurrencyBounds {
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

export const OVERLOAD_BOUNDS: OverloadBounds = {
  leastAtOnce: 64,
  mostAtOnce: 320,
  patienceMs: 50,
  idlePatienceMs: 1_000,
  leastWaiting: 256,
  mostWaiting: 2_048,
  most: 8_192,
};

/** Of all requests there may be, the share at which those that nobody pays for are refused. */
const UNPAID_SHARE = 0.5;
const SAMPLE_MS = 50;
/** For so many samples after somebody was refused who pays, nobody is served who does not. */
const PAID_FIRST_SAMPLES = 20;
/** Of requests that are refused but for what was paid before, how many may look for that at a time. */
const MAX_LOOKUPS = 16;
const SUMMARY_MS = 1_000;
/** Clients whose address is remembered because it guesses, each by so many characters at most. */
const MOST_GUESSING = 10_000;
const MOST_CLIENT_CHARACTERS = 200;

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
 * Refuses speech that this process can't begin in time, before anything is read or held. What decides is how long those
 * wait who pay, how much there is in all, and how long the event loop's turns are:
 *
 *     no credential            refused when half as many wait half as long as may, for a second after one with a
 *                              credential was refused, or when turns of the event loop take too long
 *     one like those that fail the first two, once the edge knows the address
 *     any other credential     begins in its turn; refused when those before it have waited too long
 *     what may have been paid  looked up even then, a few at a time; what is new is refused
 *
 * A refusal is written before Fastify sees the request: for each that is served at five times the load four are refused,
 * and may not cost what serves the fifth. So they are written when there is time, and have no line in the log each, only
 * one a second together.
 */
export class Overload {
  readonly #work: WorkInProgress;
  readonly #bounds: OverloadBounds;
  readonly #metrics: Metrics;
  readonly #log: FastifyBaseLogger;
  readonly #operations: ReadonlyMap<string, Sheddable>;
  readonly #turn = new LoopTurn();
  readonly #pace = new RefusalPace(writeOverloaded, () => this.#limit.waiting === 0);
  readonly #limit: ConcurrencyLimit;
  /** The addresses of clients that had a guess refused. */
  readonly #guessing = new Map<string, string>();
  #isGuess: (address: string) => boolean = () => false;
  /** Requests that are there to look up what was paid before. */
  readonly #lookups = new WeakSet<IncomingMessage>();
  #lookupsNow = 0;
  #sampling: NodeJS.Timeout | undefined;
  #paidFirstSamples = 0;
  #shed = { unpaid: 0, paid: 0, guess: 0, left: 0, toldAt: 0 };

  constructor(parts: OverloadParts) {
    this.#work = parts.inProgress;
    this.#limit = new ConcurrencyLimit(parts.overloadBounds, parts.inProgress);
    this.#bounds = parts.overloadBounds;
    this.#metrics = parts.metrics;
    this.#log = parts.logger;
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

  /**
   * Begins to look how busy the process is.
   * @param isGuess whether the last credential of an address failed
   */
  start(isGuess: (address: string) => boolean): void {
    this.#isGuess = isGuess;
    this.#sampling = setInterval(() => this.sample(), SAMPLE_MS).unref();
  }

  close(): void {
    clearInterval(this.#sampling);
    this.#pace.close();
  }

  /** Requests that have not begun. */
  get waiting(): number {
    return this.#limit.waiting;
  }

  sample(): void {
    if (this.#paidFirstSamples > 0) this.#paidFirstSamples -= 1;
    this.#limit.sample();
    this.#summarize();
  }

  /** All who wait begin: once the server is about to close it would close their connections behind the first of them. */
  beginAll(): void {
    this.#limit.open();
  }

  /** What a server does with a request that there is no room for; the others are handed on. */
  before(onRequest: RequestListener): RequestListener {
    return (request, response) => {
      const operation = this.#operationOf(request);
      const judged = operation ? this.#judge(operation, request, response) : 'passes';
      if (judged === 'passes') onRequest(request, response);
      else if (operation && judged === 'begins') this.#enter(operation, request, response, onRequest);
    };
  }

  /** Whether a request is refused that shows a credential, and whose address has shown one last that failed. */
  refusesGuess(
    { method, path }: Route,
    request: IncomingMessage,
    from: { readonly address: string; readonly isGuess: boolean },
  ): boolean {
    if (!this.#isCrowded()) return false;
    const operation = this.#operations.get(`${method} ${path}`);
    if (!operation || !showsOne(operation.credentials, request.headers) || !from.isGuess) return false;
    this.#remember(clientOf(request), from.address);
    this.#count('guess', 'work');
    return true;
  }

  /**
   * Counts a request as work in progress, unless it only looks up what was paid before. What nobody pays for is not
   * counted as active: nobody who pays waits for it.
   */
  follow<T>(request: IncomingMessage, work: Promise<T>): Promise<T> {
    if (this.isLookup(request)) return work;
    const followed = this.#limit.hasEntered(request) ? this.#work.run(work) : this.#work.runAside(work);
    this.#limit.handOver(request);
    return followed;
  }

  /** Nothing new is begun for it: it may only learn what it has paid for before. */
  isLookup(request: IncomingMessage): boolean {
    return this.#lookupsNow > 0 && this.#lookups.has(request);
  }

  #operationOf({ method, url = '' }: IncomingMessage): Sheddable | undefined {
    const target = pathAndQuery(url);
    const query = target.indexOf('?');
    const path = query < 0 ? target : target.slice(0, query);
    return this.#operations.get(`${method} ${path.includes('%') ? decoded(path) : path}`);
  }

  #enter(operation: Sheddable, request: IncomingMessage, response: ServerResponse, onRequest: RequestListener): void {
    const begin = () => onRequest(request, response);
    this.#limit.enter(request, response, {
      begin: tracing()?.bind(begin) ?? begin,
      refuse: (waitedSeconds) => this.#refusePaid(response, operation, waitedSeconds),
      left: (waitedSeconds) => {
        this.#metrics.requestEnded(operation.operation, null, 'caller_left', waitedSeconds);
        this.#shed.left += 1;
      },
    });
  }

  /** Refuses a request, or tells whether it begins in its turn or past all others. */
  #judge(operation: Sheddable, request: IncomingMessage, response: ServerResponse): 'passes' | 'begins' | 'refused' {
    const isLong = this.#turn.isLong();
    const { headers } = request;
    const isCrowded = this.#isCrowded();
    if (!showsOne(operation.credentials, headers)) {
      if (!isLong && !isCrowded) return 'passes';
      return this.#refuse(response, operation, 'unpaid', isLong ? 'event_loop' : 'work');
    }
    if (isCrowded && this.#isKnownToGuess(request)) return this.#refuse(response, operation, 'guess', 'work');
    if (!this.#limit.isFull && this.#work.size < this.#bounds.most) return 'begins';
    if (this.#lookupsNow < MAX_LOOKUPS && showsOne(operation.repeats, headers)) {
      this.#lookups.add(request);
      this.#lookupsNow += 1;
      response.once('close', () => {
        this.#lookupsNow -= 1;
      });
      return 'passes';
    }
    this.#refusePaid(response, operation, 0);
    return 'refused';
  }

  /** Whether nobody is to be served who does not pay. */
  #isCrowded(): boolean {
    if (this.#paidFirstSamples > 0 || this.#limit.isHalfFull) return true;
    return this.#work.size >= this.#bounds.most * UNPAID_SHARE;
  }

  #isKnownToGuess(request: IncomingMessage): boolean {
    const address = this.#guessing.size > 0 ? this.#guessing.get(clientOf(request)) : undefined;
    return address !== undefined && this.#isGuess(address);
  }

  #remember(client: string, address: string): void {
    if (client.length > MOST_CLIENT_CHARACTERS) return;
    if (this.#guessing.size >= MOST_GUESSING) this.#guessing.clear();
    this.#guessing.set(client, address);
  }

  #refusePaid(response: ServerResponse, operation: Sheddable, waitedSeconds: number): void {
    this.#paidFirstSamples = PAID_FIRST_SAMPLES;
    this.#refuse(response, operation, 'paid', 'work', waitedSeconds);
  }

  #refuse(
    response: ServerResponse,
    { operation }: Sheddable,
    shed: ShedClass,
    reason: ShedReason,
    waitedSeconds = 0,
  ): 'refused' {
    this.#pace.refuse(response);
    this.#metrics.requestEnded(operation, 503, 'answered', waitedSeconds);
    this.#count(shed, reason);
    return 'refused';
  }

  #count(shed: ShedClass, reason: ShedReason): void {
    this.#shed[shed] += 1;
    this.#metrics.shed(shed, reason);
  }

  #summarize(): void {
    const { toldAt, ...shed } = this.#shed;
    const now = performance.now();
    if (now - toldAt < SUMMARY_MS || shed.unpaid + shed.paid + shed.guess + shed.left === 0) return;
    this.#shed = { unpaid: 0, paid: 0, guess: 0, left: 0, toldAt: now };
    const { waiting } = this;
    const { active, size: inProgress } = this.#work;
    this.#log.warn({ shed, active: active - waiting, waiting, inProgress }, 'requests were refused: overload');
  }
}

/** Another spelling of the same path; one that is none is left to the router. */
function decoded(path: string): string {
  try {
    return decodeURI(path);
  } catch {
    return path;
  }
}

const showsOne = (names: readonly string[], headers: IncomingHttpHeaders): boolean =>
  names.some((name) => headers[name] !== undefined);

/** What the edge tells the address of a client from. */
const clientOf = ({ socket, headers }: IncomingMessage): string =>
  `${socket.remoteAddress} ${headers['x-forwarded-for'] ?? ''}`;
