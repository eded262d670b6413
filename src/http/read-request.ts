import type { FastifyRequest } from 'fastify';
import type { Route } from '../contract/routes.ts';
import { decodeBody, readContentType } from './body.ts';
import { type ErrorCode, type Failure, failure } from './structured-error.ts';
import { violation } from './validation.ts';

/** Decodes and validates in the order of R7; nothing has been touched when a rule is broken. */
export function readRequest(
  route: Route,
  request: FastifyRequest,
): { request: unknown } | { failure: Failure<ErrorCode> } {
  const body = readBody(route, request);
  if ('failure' in body) return body;
  const query = request.query as Record<string, unknown>;
  const { validate } = route;
  const parts = [
    ['path', validate.params, request.params],
    ['query', validate.query, query],
    ['header', validate.headers, request.headers],
    ['body', validate.body?.[body.type], body.value],
  ] as const;
  for (const [location, validator, value] of parts) {
    if (!validator || (location === 'body' && value === undefined)) continue;
    if (!validator(value)) {
      const { code, message, details } = violation(validator.errors ?? [], location);
      return { failure: failure(code, message, details) };
    }
  }
  const value = route.consumes.length > 1 ? { type: body.type, value: body.value } : body.value;
  return { request: { params: request.params, query, headers: request.headers, body: value } };
}

function readBody(
  route: Route,
  request: FastifyRequest,
): { type: string; value: unknown } | { failure: Failure<ErrorCode> } {
  const bytes = request.body;
  const { type } = readContentType(request.headers['content-type']);
  if (route.consumes.length === 0) return { type, value: undefined };
  if (Buffer.isBuffer(bytes) && route.consumes.includes(type)) {
    const decoded = decodeBody(type, bytes);
    return 'failure' in decoded ? decoded : { type, value: decoded.value };
  }
  if (!route.bodyRequired) return { type, value: undefined };
  const details = { field: 'body', rule: 'required', allowed: [...route.consumes] };
  return { failure: failure('INVALID_REQUEST', `A body of type ${route.consumes.join(' or ')} is required.`, details) };
}
