import type { FastifyReply, FastifyRequest } from 'fastify';
import { prefersHtml } from './accept.ts';
import type { OperationContext } from './context.ts';
import { ResponseAnswer } from './response-answer.ts';
import { pathAndQuery } from './target.ts';

const EMPTY = Buffer.alloc(0);

/** What an operation is told of a request. */
export function contextOf(
  request: FastifyRequest,
  reply: FastifyReply,
  { isBare, flowHeaders }: { isBare: boolean; flowHeaders: readonly string[] },
): OperationContext {
  return {
    traceId: request.id,
    method: request.method,
    ip: request.ip,
    get flowHeaders() {
      return Object.fromEntries(flowHeaders.map((name) => [name, headerOf(request, name)]));
    },
    url: pathAndQuery(request.url),
    bytes: Buffer.isBuffer(request.body) ? request.body : EMPTY,
    isBare,
    prefersHtml: () => prefersHtml(request),
    log: request.log,
    answer: new ResponseAnswer(request.raw.socket, reply.raw, () => request.record.brokeOff()),
    note: (facts) => request.record.note(facts),
    follow: (work) => request.record.follow(work),
    setHeader: (name, value) => void reply.header(name, value),
    admission: request.admission,
  };
}

/** Node keeps no header but set-cookie as a list. */
const headerOf = ({ headers }: FastifyRequest, name: string) => headers[name] as string | undefined;
