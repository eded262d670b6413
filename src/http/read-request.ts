import type { FastifyRequest } from 'fastify';
import type { Route } from '../contract/routes.ts';
import { decodeBody, readContentType, type Unreadable, unreadable } from './body.ts';
import { failure } from './structured-error.ts';
import { violation } from './validation.ts';

/** Decodes and validates in the order of R7; nothing has been touched when a rule is broken. */
export function readRequest(
  route: Route,
  request: FastifyRequest,
): { readonly outcome: 'read'; readonly request: unknown } | Unreadable {
  const body = readBody(route, request);
  if (body.outcome === 'unreadable') return body;
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
      return unreadable(failure(code, message, details));
    }
  }
  const value = route.consumes.length > 1 ? { type: body.type, value: body.value } : body.value;
  return { outcome: 'read', request: { params: request.params, query, headers: request.headers, body: value } };
}

function readBody(
  route: Route,
  request: FastifyRequest,
): { readonly outcome: 'read'; readonly type: string; readonly value: unknown } | Unreadable {
  const bytes = request.body;
  const { type } = readContentType(request.headers['content-type']);
  if (route.consumes.length === 0) return { outcome: 'read', type, value: undefined };
  if (Buffer.isBuffer(bytes) && route.consumes.includes(type)) {
    const decoded = decodeBody(type, bytes);
    return decoded.outcome === 'unreadable' ? decoded : { outcome: 'read', type, value: decoded.value };
  }
  if (!route.bodyRequired) return { outcome: 'read', type, value: undefined };
  const details = { field: 'body', rule: 'required', allowed: [...route.consumes] };
  return unreadable(failure('INVALID_REQUEST', `A body of type ${route.consumes.join(' or ')} is required.`, details));
}
