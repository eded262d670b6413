import type { FastifyBaseLogger } from 'fastify';
import type { PaymentOutcome } from '../contract/types.ts';
import type { Answer } from '../lib/answer.ts';
import type { Ticket } from './admission.ts';
import type { RequestFacts } from './request-record.ts';

/** What an operation may know of the request beyond what the contract declares for it. */
export interface OperationContext {
  /** UUID of this request, also sent as `x-trace-id`. */
  readonly traceId: string;
  /** As it was sent: HEAD, where the operation serves it in the place of GET. */
  readonly method: string;
  /** The client's address: the socket's, or what a trusted proxy says (R39). */
  readonly ip: string;
  /** Path and query as they were sent. */
  readonly url: string;
  /** The body as it was sent; empty when there was none. */
  readonly bytes: Buffer;
  /** The request said nothing at all, and what it is taken for was made up by the service. */
  readonly isBare: boolean;
  /** Too much is in progress: the request may learn what it has paid for before, and nothing new is begun for it. */
  readonly isOverloaded: boolean;
  /** Whether the request has this header, which the operation need not declare: payment flows are not mixed (R36). */
  hasHeader(name: string): boolean;
  /** Whether the caller would rather have a page than JSON (R15). */
  prefersHtml(): boolean;
  readonly log: FastifyBaseLogger;
  readonly answer: Answer;
  /** Adds to what the request's line in the log tells. */
  note(facts: RequestFacts): void;
  /** Work of the request that may outlive its answer: its line in the log waits for it. */
  follow<T>(work: Promise<T>): Promise<T>;
  /** What happened to the money so far: any error that answers the request carries it as `details.payment` (R64). */
  payment: PaymentOutcome | undefined;
  /** Adds a header to the response whatever its status, for headers that the contract marks `x-set-by: edge`. */
  setHeader(name: string, value: string): void;
  /** What the operation asks of the limits. */
  readonly admission: Ticket;
}
