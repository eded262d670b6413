import { Readable } from 'node:stream';
import type { FastifyReply } from 'fastify';
import type { OperationResult } from '../contract/operations.ts';
import type { Route } from '../contract/routes.ts';
import { pageContentSecurityPolicy, renderErrorPage } from '../pages/page.ts';
import { prefersHtml } from './accept.ts';
import { payloadOf } from './fixed-body.ts';
import { HTML_TYPE, JSON_TYPE } from './media-types.ts';
import type { RateLimited } from './rate-limit-answer.ts';
import type { ErrorBody, ErrorCode, Failure } from './structured-error.ts';

/** Sends what an operation returned, in the media type that the contract declares for its status. */
export function sendResult(route: Route, result: OperationResult, reply: FastifyReply): FastifyReply {
  reply.code(result.status);
  for (const [name, value] of Object.entries(result.headers ?? {})) {
    if (value !== undefined) reply.header(name, String(value));
  }
  const type = result.type ?? route.responses[result.status]?.produces[0];
  if (type === undefined) return reply.send();
  if (type === 'text/html') {
    if (!result.headers?.['content-security-policy']) {
      reply.header('content-security-policy', pageContentSecurityPolicy());
    }
    return reply.type(HTML_TYPE).send(result.body);
  }
  if (result.body instanceof Readable) reply.request.record.streams(result.body);
  if (type !== 'application/json') return reply.type(type).send(result.body as Uint8Array | Readable);
  const serialize = route.responses[result.status]?.serialize ?? JSON.stringify;
  return reply.type(JSON_TYPE).send(payloadOf(withPayment(result.status, result.body as object, reply), serialize));
}

/** An error's body with what happened to the money of its request, once that was looked up (R64). */
function withPayment<Body extends object>(status: number, body: Body, { request: { payment } }: FastifyReply): Body {
  if (status < 400 || !payment || !('error' in body)) return body;
  const { error } = body as unknown as ErrorBody;
  return { ...body, error: { ...error, details: { ...error.details, payment } } };
}

/**
 * Sends a structured error that the edge found, as a page where the operation declares a page for that status and the
 * caller prefers one or nothing else is declared.
 */
export function sendFailure(
  route: Route | undefined,
  failure: Failure<ErrorCode> | RateLimited,
  reply: FastifyReply,
): FastifyReply {
  const produces = route?.responses[failure.status]?.produces ?? ['application/json'];
  reply.code(failure.status);
  if ('headers' in failure) reply.headers(failure.headers);
  if (produces.includes('text/html') && (prefersHtml(reply.request) || !produces.includes('application/json'))) {
    return reply
      .header('content-security-policy', pageContentSecurityPolicy())
      .type(HTML_TYPE)
      .send(renderErrorPage(failure.body.error.message));
  }
  return reply.type(JSON_TYPE).send(JSON.stringify(withPayment(failure.status, failure.body, reply)));
}
