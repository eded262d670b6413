import { AsyncResource } from 'node:async_hooks';
import type { Readable } from 'node:stream';
import type { FastifyReply, FastifyRequest } from 'fastify';
import type { Flow, Metrics, RequestEnd } from '../../observability/metrics.ts';

declare module 'fastify' {
  interface FastifyRequest {
    record: RequestRecord;
  }
}

/** Facts for the request's log line: no text, credential or account (R40). */
export interface RequestFacts {
  readonly flow?: Flow;
  readonly characters?: number;
  /** The final charge; absent while unknown, or if another request was charged. */
  readonly chargedMicroUsd?: bigint;
  /** Of an error. */
  readonly code?: string;
  readonly reason?: string;
}

/** Writes one log line and one count, after the response closed and all work ended: only then is the charge known. */
export class RequestRecord {
  readonly #request: FastifyRequest;
  readonly #reply: FastifyReply;
  readonly #metrics: Metrics;
  readonly #begunAt = performance.now();
  #facts: RequestFacts | undefined;
  #open = 1;
  #isAborted = false;
  #streamedBytes: number | undefined;
  #answer: { end: RequestEnd; status: number | null; bytes: number; ms: number } | undefined;

  constructor(request: FastifyRequest, reply: FastifyReply, metrics: Metrics) {
    this.#request = request;
    this.#reply = reply;
    this.#metrics = metrics;
    // A tracer finds the request by the asynchronous context, which an event of the socket lacks.
    const context = new AsyncResource('Request');
    reply.raw.once('close', () => context.runInAsyncScope(() => this.#answerIsOver()));
  }

  addLogFields(fields: RequestFacts): void {
    this.#facts = this.#facts ? { ...this.#facts, ...fields } : fields;
  }

  waitFor<T>(work: Promise<T>): Promise<T> {
    this.#open += 1;
    const ended = () => this.#ended();
    work.then(ended, ended);
    return work;
  }

  countBytes(body: Readable): void {
    this.#streamedBytes = 0;
    body.on('data', (chunk: Uint8Array) => {
      this.#streamedBytes = (this.#streamedBytes ?? 0) + chunk.length;
    });
    body.once('error', () => this.markAborted());
  }

  markAborted(): void {
    this.#isAborted = true;
  }

  #answerIsOver(): void {
    if (this.#answer) return;
    const { raw, statusCode } = this.#reply;
    // A response that waits behind another one has no socket yet.
    const isBegun = raw.writableFinished || (raw.headersSent && raw.socket !== null);
    this.#answer = {
      end: raw.writableFinished ? 'answered' : this.#isAborted ? 'broken_off' : 'caller_left',
      status: isBegun ? statusCode : null,
      bytes: isBegun ? this.#bytes() : 0,
      ms: performance.now() - this.#begunAt,
    };
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

  #bytes(): number {
    if (this.#request.method === 'HEAD') return 0;
    return this.#streamedBytes ?? Number(this.#reply.getHeader('content-length') ?? 0);
  }
}

function loggable({ chargedMicroUsd, ...facts }: RequestFacts): object {
  return chargedMicroUsd === undefined ? facts : { chargedMicroUsd: Number(chargedMicroUsd), ...facts };
}
