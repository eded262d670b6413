import type { ServerResponse } from 'node:http';
import { Readable } from 'node:stream';
import type { FastifyReply, FastifyRequest } from 'fastify';
import type { OperationResult } from '../contract/operations.ts';
import type { Route } from '../contract/routes.ts';
import { pageContentSecurityPolicy, renderErrorPage, renderWayOn } from './pages/page.ts';
import type { ErrorBody, RequestRefused } from './structured-error.ts';

export const JSON_TYPE = 'application/json; charset=utf-8';
const HTML_TYPE = 'text/html; charset=utf-8';
/** Cache-Control of paid responses and of those that show a bearer id (R43, R52). */
export const PRIVATE_CACHE = 'private, no-store';
/** Of a page without a form that leads elsewhere. */
const PAGE_POLICY = pageContentSecurityPolicy();
/** Longer bodies are sent as a Buffer; a shorter string goes out in one write with the headers. */
const LARGE_BODY = 16_384;

const fixedBodies = new WeakMap<object, { payload: string | Buffer | undefined }>();

export function fixedBody<Body extends object>(body: Body): Body {
  fixedBodies.set(body, { payload: undefined });
  return body;
}

/** A JSON body whose text is already known. @param text the whole text, if the body holds only a part */
export function serializedBody<Body extends object>(body: Body, text: string): Body {
  fixedBodies.set(body, { payload: text });
  return body;
}

/** The text of a body that is known or stays the same; otherwise the body, which Fastify serializes. */
function payloadOf(body: object, serialize: (body: unknown) => string): string | Buffer | object {
  const fixed = fixedBodies.get(body);
  if (!fixed) return body;
  if (fixed.payload === undefined) {
    const text = serialize(body);
    fixed.payload = text.length < LARGE_BODY ? text : Buffer.from(text);
  }
  return fixed.payload;
}

/**
 * Whether Accept names HTML and prefers it to JSON by quality values (RFC 9110, 12.5.1). At equal quality HTML wins,
 * unless JSON comes first (R15). A range such as text/* does not count as HTML.
 */
export function prefersHtml(request: FastifyRequest): boolean {
  if (!/text\/html/i.test(request.headers.accept ?? '')) return false;
  return request.type([JSON_TYPE, HTML_TYPE]) === HTML_TYPE;
}

/** Answers a browser's address bar with the way on, if the status is declared as a page (402, 404). */
export function sendWayOn(reply: FastifyReply, status: number, body: object): FastifyReply | undefined {
  const { error, topUpUrl } = body as ErrorBody & { readonly topUpUrl?: string };
  const { method } = reply.request;
  if (!error || (method !== 'GET' && method !== 'HEAD') || !prefersHtml(reply.request)) return undefined;
  return sendPage(reply.code(status), renderWayOn(status, error.message, topUpUrl));
}

const sendPage = (reply: FastifyReply, page: string): FastifyReply =>
  reply.header('content-security-policy', PAGE_POLICY).type(HTML_TYPE).send(page);

/** Adds what an error says to the request's log line. The reason is a word of a closed set. */
export function logError({ code, details }: ErrorBody['error'], { request }: FastifyReply): void {
  const reason = details?.reason ?? details?.error ?? details?.rule;
  request.record.addLogFields(typeof reason === 'string' ? { code, reason } : { code });
}

export function sendResult(route: Route, result: OperationResult, reply: FastifyReply): FastifyReply {
  const { status, headers = {}, body } = result;
  reply.code(status);
  if (status >= 400 && body instanceof Object && 'error' in body) logError((body as ErrorBody).error, reply);
  for (const [name, value] of Object.entries(headers)) {
    if (value !== undefined) reply.header(name, String(value));
  }
  const type = result.type ?? route.responses[status]?.produces[0];
  if (type === undefined) return reply.send();
  if (type === 'text/html') {
    if (!headers['content-security-policy']) reply.header('content-security-policy', PAGE_POLICY);
    return reply.type(HTML_TYPE).send(body);
  }
  if (type === 'text/plain') return reply.type('text/plain; charset=utf-8').send(body);
  if (body instanceof Readable) {
    reply.request.record.countBytes(body);
    body.once('error', () => reply.raw.headersSent && resetResponse(reply.raw));
  }
  if (type !== 'application/json') return reply.type(type).send(body as Uint8Array | Readable);
  const { produces, serialize = JSON.stringify } = route.responses[status] ?? {};
  const wayOn = status >= 400 && produces?.includes('text/html') && sendWayOn(reply, status, body as object);
  if (wayOn) return wayOn;
  return reply.type(JSON_TYPE).send(payloadOf(body as object, serialize));
}

/** Cuts a response by a TCP reset: after an orderly end, HTTP/1.0 callers and proxies take it for whole (R55). */
export function resetResponse(raw: ServerResponse): void {
  // A response that waits behind another one has no socket yet.
  if (raw.socket && !raw.socket.destroyed) raw.socket.resetAndDestroy();
  raw.destroy();
}

/** Adds what happened to the money to an error, once the payment was looked up (R64). */
export function showPayment(body: unknown, { statusCode, request: { payment } }: FastifyReply): unknown {
  if (statusCode < 400 || !payment || !(body instanceof Object && 'error' in body)) return body;
  const { error } = body as ErrorBody;
  return { ...body, error: { ...error, details: { ...error.details, payment } } };
}

/** Sends an error of the edge, as a page if only a page is declared or the caller prefers it. */
export function sendFailure(
  route: Route | undefined,
  failure: RequestRefused['failure'],
  reply: FastifyReply,
): FastifyReply {
  const produces = route?.responses[failure.status]?.produces ?? ['application/json'];
  reply.code(failure.status);
  logError(failure.body.error, reply);
  if (failure.headers) reply.headers(failure.headers);
  if (produces.includes('text/html') && (prefersHtml(reply.request) || !produces.includes('application/json'))) {
    return sendPage(reply, renderErrorPage(failure.body.error.message));
  }
  return reply.type(JSON_TYPE).send(failure.body);
}
