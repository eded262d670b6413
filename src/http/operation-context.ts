import type { FastifyBaseLogger, FastifyReply, FastifyRequest } from 'fastify';
import type { PaymentOutcome } from '../contract/types.ts';
import type { RunningWork } from '../lib/running-work.ts';
import type { RequestContext, ResponseEvents } from '../payments/payment-flow.ts';
import type { RateLimits } from './plugins/rate-limits.ts';
import { pathAndQuery } from './plugins/request-head.ts';
import type { RequestFacts } from './plugins/request-log.ts';
import { prefersHtml, resetResponse } from './reply.ts';

const EMPTY = Buffer.alloc(0);

export class OperationContext implements RequestContext {
  readonly traceId: string;
  readonly method: string;
  readonly url: string;
  readonly bytes: Buffer;
  /** The request was a bare probe: the service supplied its query and body (R59). */
  readonly isBare: boolean;
  readonly log: FastifyBaseLogger;
  readonly rateLimits: RateLimits;
  readonly #request: FastifyRequest;
  readonly #reply: FastifyReply;
  #response: ResponseEvents | undefined;

  constructor(request: FastifyRequest, reply: FastifyReply) {
    this.traceId = request.id;
    this.method = request.method;
    this.url = pathAndQuery(request.url);
    this.bytes = request.bytes ?? EMPTY;
    this.isBare = request.isBareProbe;
    this.log = request.log;
    this.rateLimits = request.rateLimits;
    this.#request = request;
    this.#reply = reply;
  }

  get client(): string {
    return this.#request.client;
  }

  /** What happened to the money so far. Every error response shows it as `details.payment` (R64). */
  get payment(): PaymentOutcome | undefined {
    return this.#request.payment;
  }

  set payment(outcome: PaymentOutcome | undefined) {
    this.#request.payment = outcome;
  }

  get response(): ResponseEvents {
    this.#response ??= this.#eventsOf(this.#reply);
    return this.#response;
  }

  #eventsOf({ raw, request }: FastifyReply): ResponseEvents {
    return {
      onEnd(listener) {
        let hasEnded = false;
        const end = () => {
          if (hasEnded) return;
          hasEnded = true;
          // An error response is never charged, even if it is sent whole.
          listener(raw.statusCode >= 400);
        };
        raw.once('finish', end);
        raw.once('close', end);
        if (raw.writableFinished || raw.destroyed) end();
      },
      get isClosed() {
        return raw.destroyed;
      },
      abort() {
        if (raw.writableFinished) return;
        request.record.markAborted();
        resetResponse(raw);
      },
    };
  }

  hasHeader(name: string): boolean {
    return this.#request.headers[name] !== undefined;
  }

  prefersHtml(): boolean {
    return prefersHtml(this.#request);
  }

  /** Whether a browser loads a page, which no script can pretend. */
  get isPageLoad(): boolean {
    return this.#request.headers['sec-fetch-dest'] === 'document';
  }

  addLogFields(fields: RequestFacts): void {
    this.#request.record.addLogFields(fields);
  }

  /** Makes the request's log line wait for work that may outlive the response. */
  waitFor<T>(work: Promise<T>): Promise<T> {
    return this.#request.record.waitFor(work);
  }

  /** Adds the final charge to the request's log line, and makes a stop of the process wait for it. */
  followCharge(charged: Promise<boolean>, priceMicroUsd: bigint, work: RunningWork): void {
    const noted = charged.then((isCharged) => this.addLogFields({ chargedMicroUsd: isCharged ? priceMicroUsd : 0n }));
    work
      .add(this.waitFor(noted))
      .catch((err) =>
        this.log.error(
          { err },
          'failed to capture or void a hold; when the hold expires, it is voided and its payer is not charged. Read err for the cause',
        ),
      );
  }

  /** Sets a header for any status, as the contract marks it with `x-set-by: edge`. */
  setHeader(name: string, value: string): void {
    this.#reply.header(name, value);
  }
}
