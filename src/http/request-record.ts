import { randomUUID } from 'node:crypto';
import type { ServerResponse } from 'node:http';
import type { Readable } from 'node:stream';
import type { FastifyBaseLogger, FastifyReply, FastifyRequest } from 'fastify';
import type { Flow, Metrics, RequestEnd } from '../observability/metrics.ts';
import { tracing } from '../observability/tracing.ts';
import { arrivalOf } from './concurrency-limit.ts';

/** What an operation tells of a request for its line in the log: no text, no credential, no account (R40). */
export interface RequestFacts {
  readonly flow?: Flow;
  readonly characters?: number;
  /** What it was charged in the end; missing where that isn't known yet, or another request's affair. */
  readonly chargedMicroUsd?: bigint;
}

/** A request that is answered past Fastify, since it can't be read, or is none. */
export interface Refusal {
  /** Undefined where nothing was read that has one. */
  readonly method: string | undefined;
  readonly status: number;
  /** Of the body. */
  readonly bytes: number;
  /** Of the request, where it had begun. */
  readonly response?: ServerResponse | undefined;
}

/** Takes note of a refusal; tells the trace id for its answer. */
export type RecordRefusal = (refusal: Refusal) => string;

const RECORD = Symbol('record');
type Recorded = ServerResponse & { [RECORD]?: RequestRecord };

interface AnswerEnd {
  readonly end: RequestEnd;
  readonly status: number | null;
  readonly bytes: number;
  /** From the request's beginning. */
  readonly ms: number;
}

/**
 * Follows a request to its end, for exactly one line in the log and one count: once its answer is over, however that
 * came, and what it has begun has ended too, since only then it is known what was charged.
 */
export class RequestRecord {
  readonly #request: FastifyRequest;
  readonly #reply: FastifyReply;
  readonly #metrics: Metrics;
  readonly #begunAt: number;
  readonly #isHead: boolean;
  #facts: RequestFacts | undefined;
  /** The answer, and the work that goes on. */
  #open = 1;
  #isBrokenOff = false;
  #streamedBytes: number | undefined;
  #answer: AnswerEnd | undefined;

  constructor(request: FastifyRequest, reply: FastifyReply, metrics: Metrics) {
    this.#request = request;
    this.#reply = reply;
    this.#metrics = metrics;
    this.#begunAt = arrivalOf(reply.raw) ?? performance.now();
    this.#isHead = request.method === 'HEAD';
    const over = () => this.#answerIsOver();
    reply.raw.once('close', tracing()?.bind(over) ?? over);
    (reply.raw as Recorded)[RECORD] = this;
  }

  note(facts: RequestFacts): void {
    this.#facts = this.#facts ? { ...this.#facts, ...facts } : facts;
  }

  /** Waits for work that may outlive the answer. */
  follow<T>(work: Promise<T>): Promise<T> {
    this.#open += 1;
    work.then(
      () => this.#ended(),
      () => this.#ended(),
    );
    return work;
  }

  /** The body of the answer is what this gives. */
  streams(body: Readable): void {
    this.#streamedBytes = 0;
    body.on('data', (chunk: Uint8Array) => {
      this.#streamedBytes = (this.#streamedBytes ?? 0) + chunk.length;
    });
    body.once('error', () => this.brokeOff());
  }

  /** The answer is cut by this side. */
  brokeOff(): void {
    this.#isBrokenOff = true;
  }

  /** It is answered past Fastify. Tells its trace id. */
  refused(status: number, bytes: number): string {
    this.#answered('answered', status, bytes);
    return this.#request.id;
  }

  #answerIsOver(): void {
    const { raw, statusCode } = this.#reply;
    // One that waits behind another answer has no connection yet.
    const isBegun = raw.writableFinished || (raw.headersSent && raw.socket !== null);
    this.#answered(
      raw.writableFinished ? 'answered' : this.#isBrokenOff ? 'broken_off' : 'caller_left',
      isBegun ? statusCode : null,
      isBegun ? this.#bytes() : 0,
    );
  }

  #answered(end: RequestEnd, status: number | null, bytes: number): void {
    if (this.#answer) return;
    this.#answer = { end, status, bytes, ms: performance.now() - this.#begunAt };
    this.#ended();
  }

  #ended(): void {
    this.#open -= 1;
    if (this.#open > 0 || !this.#answer) return;
    const { end, status, bytes, ms } = this.#answer;
    const { routeOptions, method, log } = this.#request;
    this.#metrics.requestEnded(routeOptions.config?.contract?.operationId, status, end, ms / 1000);
    const line = { method, route: routeOptions.url ?? null, status, end, ms: Math.round(ms * 10) / 10, bytes };
    log.info(this.#facts ? Object.assign(line, loggable(this.#facts)) : line, 'request');
  }

  /** Of the body, as far as it was handed to the connection. */
  #bytes(): number {
    if (this.#isHead) return 0;
    return this.#streamedBytes ?? Number(this.#reply.getHeader('content-length') ?? 0);
  }
}

function loggable({ chargedMicroUsd, ...facts }: RequestFacts): object {
  return chargedMicroUsd === undefined ? facts : { chargedMicroUsd: Number(chargedMicroUsd), ...facts };
}

/** Logs and counts refusals, as their requests' own where these had begun. */
export function refusalRecorder(log: FastifyBaseLogger, metrics: Metrics): RecordRefusal {
  return ({ method, status, bytes, response }) => {
    const record = (response as Recorded | undefined)?.[RECORD];
    if (record) return record.refused(status, bytes);
    const traceId = randomUUID();
    metrics.requestEnded(undefined, status, 'answered', 0);
    log.info({ traceId, method: method ?? null, route: null, status, end: 'answered', bytes }, 'request');
    return traceId;
  };
}
