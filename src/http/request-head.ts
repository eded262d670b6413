import type { FastifyRequest } from 'fastify';
import type { Route } from '../contract/routes.ts';
import { isPercentEncoded, refuseContentType } from './body.ts';
import { failure } from './structured-error.ts';
import { namesPath, queryOf } from './target.ts';

/** Refuses a request by its target and headers, before its body is read (R7); undefined when they are well-formed. */
export function refuseHead(request: FastifyRequest, route: Route | undefined) {
  if (request.raw.httpVersion === '1.1' && request.headers.host === undefined) {
    return failure('INVALID_REQUEST', 'The host header is missing.', { field: 'host', rule: 'required' });
  }
  if (!namesPath(request.url, request.method)) {
    const details = { field: 'url', rule: 'path' };
    return failure('INVALID_REQUEST', 'The request target must be a path, which starts with /.', details);
  }
  if (request.url.includes('#')) {
    const details = { field: 'url', rule: 'no fragment' };
    return failure('INVALID_REQUEST', 'A request has no fragment; encode # as %23.', details);
  }
  if (!route || hasEmptyParameter(request)) return undefined;
  const repeated = repeatedHeader(request, route);
  if (repeated) {
    return failure('INVALID_REQUEST', `${repeated} is sent twice. Send it once.`, { field: repeated, rule: 'once' });
  }
  if (route.query.length > 0 && !isPercentEncoded(queryOf(request.url))) {
    const details = { field: 'query', rule: 'percent-encoding' };
    return failure('INVALID_REQUEST', 'The query is not valid percent-encoded UTF-8.', details);
  }
  const hasContent = hasBody(request) || request.headers['content-type'] !== undefined;
  return route.consumes.length > 0 && hasContent ? refuseContentType(request.headers, route.consumes) : undefined;
}

/** A declared header that was sent twice, which Node joins to one value. */
function repeatedHeader({ raw: { rawHeaders } }: FastifyRequest, { headers }: Route): string | undefined {
  if (headers.length === 0) return undefined;
  const names = rawHeaders.filter((_, index) => index % 2 === 0).map((name) => name.toLowerCase());
  return headers.find((name) => names.indexOf(name) !== names.lastIndexOf(name));
}

/** Fastify finds a route also for `/credits/`, which no path of the contract is. */
export const hasEmptyParameter = ({ params }: FastifyRequest): boolean => Object.values(params as object).includes('');

const hasBody = (request: FastifyRequest): boolean =>
  request.headers['transfer-encoding'] !== undefined || Number(request.headers['content-length'] ?? 0) > 0;
