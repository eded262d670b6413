import type { FastifyRequest } from 'fastify';
import fp from 'fastify-plugin';
import type { Route } from '../../contract/routes.ts';
import { failure, RequestRefused } from '../structured-error.ts';

/** Path and query of a request target, which may be absolute (RFC 9112, 3.2.2). */
export const pathAndQuery = (target: string): string => target.replace(/^https?:\/\/[^/?#]*/i, '');

export function queryOf(target: string): string {
  const mark = target.indexOf('?');
  return mark === -1 ? '' : target.slice(mark + 1);
}

/** Whether the target is `/…`, `http://host…`, or `*` with OPTIONS (RFC 9112, 3.2). */
const namesPath = (target: string, method: string): boolean =>
  target.startsWith('/') || /^https?:\/\/[^/?#]/i.test(target) || (target === '*' && method === 'OPTIONS');

/** Refuses a malformed target or malformed headers before the body is read (R7). */
export const requestHead = fp(async (app) => {
  app.addHook('onRequest', async (request, reply) => {
    const route = request.routeOptions.config.contract;
    const refusal = refuseHead(request, route);
    if (refusal) throw new RequestRefused(refusal);
    if (route && hasEmptyParameter(request)) return reply.callNotFound();
  });
});

function refuseHead(request: FastifyRequest, route: Route | undefined) {
  const { url, method, headers } = request;
  if (request.raw.httpVersion === '1.1' && headers.host === undefined) {
    return failure('INVALID_REQUEST', 'The host header is missing. Send it. You were not charged.', {
      field: 'host',
      rule: 'required',
    });
  }
  if (!namesPath(url, method)) {
    const details = { field: 'url', rule: 'path' };
    return failure(
      'INVALID_REQUEST',
      'The request target, the URL in the first line, must be a path that starts with /. Correct it. You were not charged.',
      details,
    );
  }
  if (url.includes('#')) {
    const details = { field: 'url', rule: 'no fragment' };
    return failure('INVALID_REQUEST', 'The URL contains a #. Write it as %23. You were not charged.', details);
  }
  if (!route || hasEmptyParameter(request)) return undefined;
  const repeated = repeatedHeader(request, route);
  if (repeated) {
    return failure('INVALID_REQUEST', `The header ${repeated} is repeated. Send it once. You were not charged.`, {
      field: repeated,
      rule: 'once',
    });
  }
  if (route.query.length > 0 && !isPercentEncoded(queryOf(url))) {
    const details = { field: 'query', rule: 'percent-encoding' };
    return failure(
      'INVALID_REQUEST',
      'The query is not valid percent-encoded UTF-8. Encode each value from its plain text, as encodeURIComponent does. You were not charged.',
      details,
    );
  }
  const hasBody = headers['transfer-encoding'] !== undefined || Number(headers['content-length'] ?? 0) > 0;
  const hasContent = hasBody || headers['content-type'] !== undefined;
  return route.consumes.length > 0 && hasContent ? refuseContentType(headers, route.consumes) : undefined;
}

function repeatedHeader({ raw: { rawHeaders } }: FastifyRequest, { headers }: Route): string | undefined {
  if (headers.length === 0) return undefined;
  const names = rawHeaders.filter((_, index) => index % 2 === 0).map((name) => name.toLowerCase());
  return headers.find((name) => names.indexOf(name) !== names.lastIndexOf(name));
}

/** Fastify also routes `/credits/`, which is no path of the contract. */
const hasEmptyParameter = ({ params }: FastifyRequest): boolean => Object.values(params as object).includes('');

export function readContentType(header: string | undefined): { type: string; charset: string | undefined } {
  const [type = '', ...parameters] = (header ?? '').split(';');
  const charset = parameters
    .map((parameter) => /^\s*charset\s*=\s*"?([^"\s]+)"?\s*$/i.exec(parameter)?.[1])
    .find((value) => value !== undefined);
  return { type: type.trim().toLowerCase(), charset: charset?.toLowerCase() };
}

/** Refuses a content type, charset or encoding that the operation does not read (R72); otherwise returns undefined. */
export function refuseContentType(headers: Record<string, unknown>, consumes: readonly string[]) {
  const { type, charset } = readContentType(headers['content-type'] as string | undefined);
  const coding = headers['content-encoding'];
  const details = { field: 'content-type', rule: 'enum', allowed: [...consumes], charset: 'utf-8' };
  if (!consumes.includes(type)) {
    return failure(
      'UNSUPPORTED_CONTENT_TYPE',
      `content-type must be ${consumes.join(' or ')}. You were not charged.`,
      details,
    );
  }
  if (charset !== undefined && charset !== 'utf-8' && charset !== 'utf8') {
    return failure(
      'UNSUPPORTED_CONTENT_TYPE',
      'The charset in content-type must be UTF-8. Send the body in UTF-8. You were not charged.',
      details,
    );
  }
  if (coding !== undefined && coding !== 'identity') {
    return failure(
      'UNSUPPORTED_CONTENT_TYPE',
      'content-encoding is not supported. Send the body without it. You were not charged.',
      { field: 'content-encoding', rule: 'enum', allowed: ['identity'] },
    );
  }
  return undefined;
}

export function isPercentEncoded(text: string): boolean {
  try {
    decodeURIComponent(text);
    return true;
  } catch {
    return false;
  }
}
