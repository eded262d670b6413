import type { FastifyRequest } from 'fastify';
import { HTML_TYPE, JSON_TYPE } from './media-types.ts';

/**
 * True when a request's Accept header names HTML, and prefers it to JSON by quality values (RFC 9110, 12.5.1); of equal
 * ones, when it does not name JSON before, as browsers don't (R15). What has an unreadable quality value is not wanted.
 */
export function prefersHtml(request: FastifyRequest): boolean {
  // A range such as text/* names no page.
  if (!/text\/html/i.test(request.headers.accept ?? '')) return false;
  return request.type([JSON_TYPE, HTML_TYPE]) === HTML_TYPE;
}
