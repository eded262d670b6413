import type { Readable } from 'node:stream';
import type { FastifyReply, FastifyRequest } from 'fastify';
import type { Flow, Metrics, RequestEnd } from '../metrics.ts';

/** What an operation tells of a request for its line in the log: no text, no credential, no account. */
export interface RequestFacts {
  readonly flow?: Flow;
  readonly characters?: number;
  /** What it was charged in the end; missing where that isn't known yet, or another request's affair. */
  readonly chargedMicroUsd?: bigint;
}

/**
 * Follows a request to its end, for exactly one line in the log and one count: once its answer is over, however that
 * came, and what it has begun has ended too, since only then it is known what was charged.
 */
export class RequestRecord {
  readonly #request: FastifyRequest;
  readonly #reply: FastifyReply;
  readonly #metrics: Metrics;
  readonly #begunAt = performance.now();
  readonly #isHead: boolean;
  #facts: RequestFacts = {};
  /** The answer, and the work that goes on. */
  #open = 1;
  #isBrokenOff = false;
  #streamedBytes: number | undefined;
  #answer: { readonly end: RequestEnd; readonly status: number | null; readonly ms: number } | undefined;

  constructor(request: FastifyRequest, reply: FastifyReply, metrics: Metrics) {
    this.#request = request;
    this.#reply = reply;
    this.#metrics = metrics;
    this.#isHead = request.method === 'HEAD';
    const isOver = () => this.#answerIsOver();
    reply.raw.once('close', isOver).once('lost', isOver);
  }

  note(facts: RequestFacts): void {
    this.#facts = { ...this.#facts, ...facts };
  }

  /** Waits for work that may outlive the answer. */
  follow<T>(work: Promise<T>): Promise<T> {
    this.#open += 1;
    const ended = () => this.#ended();
    work.then(ended, ended);
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

  #answerIsOver(): void {
    if (this.#answer) return;
    const { raw, statusCode } = this.#reply;
    // One that waits behind another answer has no connection yet.
    const isBegun = raw.writableFinished || (raw.headersSent && raw.socket !== null);
    this.#answer = {
      end: raw.writableFinished ? 'answered' : this.#isBrokenOff ? 'broken_off' : 'caller_left',
      status: isBegun ? statusCode : null,
      ms: performance.now() - this.#begunAt,
    };
    this.#ended();
  }

  #ended(): void {
    this.#open -= 1;
    if (this.#open > 0 || !this.#answer) return;
    const { end, status, ms } = this.#answer;
    const { routeOptions, method, log } = this.#request;
    const { chargedMicroUsd, ...facts } = this.#facts;
    this.#metrics.requestEnded(routeOptions.config?.contract?.operationId, status, end, ms / 1000);
    log.info(
      {
        method,
        route: routeOptions.url ?? null,
        status,
        end,
        ms: Math.round(ms * 10) / 10,
        bytes: this.#bytes(),
        ...facts,
        ...(chargedMicroUsd !== undefined && { chargedMicroUsd: Number(chargedMicroUsd) }),
      },
      'request',
    );
  }

  /** Of the body, as far as it was handed to the connection. */
  #bytes(): number {
    if (this.#isHead || !this.#answer?.status) return 0;
    return this.#streamedBytes ?? Number(this.#reply.getHeader('content-length') ?? 0);
  }
}
