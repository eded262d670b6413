import type { FastifyReply, FastifyRequest } from 'fastify';
import type { PaymentOutcome } from '../contract/types.ts';
import type { Answer } from '../lib/answer.ts';
import { prefersHtml } from './accept.ts';
import type { Ticket } from './admission.ts';
import type { OperationContext } from './operation-context.ts';
import type { RequestFacts } from './request-record.ts';
import { ResponseAnswer } from './response-answer.ts';
import { pathAndQuery } from './target.ts';

const EMPTY = Buffer.alloc(0);

/** What an operation is told of a request. One is made for each request, so it holds what others have and no more. */
export class RequestContext implements OperationContext {
  readonly isBare: boolean;
  readonly isOverloaded: boolean;
  readonly #request: FastifyRequest;
  readonly #reply: FastifyReply;
  #answer: Answer | undefined;

  constructor(
    request: FastifyRequest,
    reply: FastifyReply,
    { isBare, isOverloaded }: Pick<OperationContext, 'isBare' | 'isOverloaded'>,
  ) {
    this.#request = request;
    this.#reply = reply;
    this.isBare = isBare;
    this.isOverloaded = isOverloaded;
  }

  get traceId(): string {
    return this.#request.id;
  }

  get method(): string {
    return this.#request.method;
  }

  get ip(): string {
    return this.#request.ip;
  }

  get url(): string {
    return pathAndQuery(this.#request.url);
  }

  get bytes(): Buffer {
    const { body } = this.#request;
    return Buffer.isBuffer(body) ? body : EMPTY;
  }

  get log(): OperationContext['log'] {
    return this.#request.log;
  }

  get answer(): Answer {
    const { raw, record } = this.#request;
    this.#answer ??= new ResponseAnswer(raw.socket, this.#reply.raw, () => record.brokeOff());
    return this.#answer;
  }

  get payment(): PaymentOutcome | undefined {
    return this.#request.payment;
  }

  set payment(outcome: PaymentOutcome | undefined) {
    this.#request.payment = outcome;
  }

  get admission(): Ticket {
    return this.#request.admission;
  }

  hasHeader(name: string): boolean {
    return this.#request.headers[name] !== undefined;
  }

  prefersHtml(): boolean {
    return prefersHtml(this.#request);
  }

  note(facts: RequestFacts): void {
    this.#request.record.note(facts);
  }

  follow<T>(work: Promise<T>): Promise<T> {
    return this.#request.record.follow(work);
  }

  setHeader(name: string, value: string): void {
    this.#reply.header(name, value);
  }
}
