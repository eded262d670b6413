import type { FastifyRequest } from 'fastify';
import { queryOf } from './target.ts';

/** What stands for a request to an operation that says nothing at all. */
export interface StandIn {
  readonly query: object;
  readonly body: object | undefined;
  /** A request with one of these headers, in lower case, says something. */
  readonly unlessHeaders: readonly string[];
}

const EMPTY_OBJECT = /^\s*\{\s*\}\s*$/;

/** True when a request has no query, no body but `{}`, and none of these headers. */
export function isBare(request: FastifyRequest, { unlessHeaders }: StandIn): boolean {
  if (queryOf(request.url) !== '' || unlessHeaders.some((name) => request.headers[name] !== undefined)) return false;
  const bytes = request.body;
  return !Buffer.isBuffer(bytes) || bytes.length === 0 || EMPTY_OBJECT.test(bytes.toString());
}
