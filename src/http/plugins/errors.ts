import type { FastifyError, FastifyReply, FastifyRequest } from 'fastify';
import fp from 'fastify-plugin';
import type { Route } from '../../contract/routes.ts';
import type { JsonObject } from '../../contract/types.ts';
import { databaseNotReady } from '../config-errors.ts';
import { logError, sendFailure, sendWayOn, showPayment } from '../reply.ts';
import { type ErrorCode, errorBody, failure, RequestRefused } from '../structured-error.ts';

interface FrameworkFault {
  readonly code: ErrorCode;
  readonly message: string;
  readonly details?: JsonObject;
}

const FRAMEWORK_FAULTS: Readonly<Record<string, FrameworkFault>> = {
  FST_ERR_CTP_BODY_TOO_LARGE: {
    code: 'REQUEST_TOO_LARGE',
    message:
      'The body is larger than the limit in details.maximum, in bytes. Send a smaller body. You were not charged.',
  },
  FST_ERR_CTP_INVALID_MEDIA_TYPE: {
    code: 'UNSUPPORTED_CONTENT_TYPE',
    message: 'content-type is not valid. Send a type such as application/json. You were not charged.',
  },
  FST_ERR_BAD_URL: {
    code: 'INVALID_REQUEST',
    message:
      'The path is not valid percent-encoded UTF-8. Encode each value from its plain text, as encodeURIComponent does. You were not charged.',
    details: { field: 'path', rule: 'percent-encoding' },
  },
};

const MALFORMED: FrameworkFault = {
  code: 'INVALID_REQUEST',
  message: 'The request is malformed. Check its headers and body, then send it again. You were not charged.',
};

/** Answers every thrown error with a declared structured error without internals (R10); a body too large is 413 (R4). */
export const errors = fp(async (app) => {
  app.setErrorHandler(handleError);
  app.addHook('preSerialization', async (_request, reply, body) => showPayment(body, reply));
});

export function handleError(
  error: FastifyError | RequestRefused,
  request: FastifyRequest,
  reply: FastifyReply,
): FastifyReply {
  // Fastify ends a body whose caller has disconnected by an error. Nobody gets a response.
  if ((error as FastifyError).code === 'ERR_STREAM_PREMATURE_CLOSE' && reply.raw.destroyed) return reply.hijack();
  const route = request.routeOptions.config?.contract;
  const refusal = error instanceof RequestRefused ? error.failure : describe(error, request, route);
  if (refusal.status >= 500)
    request.log.error(
      { err: error },
      'a request failed, and its caller got a 5xx status; details.payment of the response, if present, says whether the caller was charged. Read err for the cause',
    );
  // A client over the edge's limit learns nothing else until it shows a valid credential.
  const overLimit = refusal.status < 500 ? request.rateLimits?.refuseIfOverLimit() : undefined;
  return sendFailure(route, overLimit ?? refusal, reply);
}

function describe(error: FastifyError, { routeOptions }: FastifyRequest, route: Route | undefined) {
  if (error.statusCode && error.statusCode < 500) {
    const fault = FRAMEWORK_FAULTS[error.code] ?? MALFORMED;
    const tooLarge = { field: 'body', rule: 'maxBytes', maximum: routeOptions.bodyLimit };
    return failure(fault.code, fault.message, fault.code === 'REQUEST_TOO_LARGE' ? tooLarge : (fault.details ?? null));
  }
  const unready = route?.responses[503];
  const mayBeUnready = unready?.errorCodes?.includes('CONFIG_ERROR') || unready?.produces.includes('text/html');
  const notReady = mayBeUnready ? databaseNotReady(error) : undefined;
  if (notReady) return notReady;
  return failure(
    'INTERNAL_ERROR',
    'The service failed; details.payment, if present, says whether you were charged. Before you pay again, repeat the identical x402 request or read your credit balance; quote x-trace-id when you ask for help.',
  );
}

/**
 * Answers OPTIONS on any path, another method on a known path (405 with `allow`, R51), and the rest (404). Another method
 * is also HEAD, where a GET charges or credits (`noHead`).
 */
export function createNotFoundHandler(routes: readonly Route[], preflightHeaders: Readonly<Record<string, string>>) {
  const patterns = routes.map((route) => ({ ...route, pattern: toPattern(route.path) }));
  const allowed = ({ url, server }: FastifyRequest) => {
    const path = url.split('?', 1)[0] ?? '';
    const served = patterns.filter(
      (route) => route.pattern.test(path) && server.hasRoute({ method: route.method, url: route.path }),
    );
    const methods = served.flatMap(({ method, noHead }) => (method === 'GET' && !noHead ? [method, 'HEAD'] : [method]));
    return methods.length > 0 ? [...methods, 'OPTIONS'].join(', ') : undefined;
  };

  return (request: FastifyRequest, reply: FastifyReply) => {
    const allow = allowed(request);
    if (allow) reply.header('allow', allow);
    if (request.method === 'OPTIONS') return reply.code(204).headers(preflightHeaders).send();
    if (allow) {
      const details = { field: 'method', rule: 'enum', allowed: allow.split(', ') };
      const message = `The method ${request.method} is not supported at this path. Use ${allow}. You were not charged.`;
      const body = errorBody('INVALID_REQUEST', message, details);
      logError(body.error, reply);
      return reply.code(405).send(body);
    }
    const message = 'This path does not exist. GET / lists the endpoints.';
    const body = errorBody('NOT_FOUND', message, { field: 'path' });
    logError(body.error, reply);
    return sendWayOn(reply, 404, body) ?? reply.code(404).send(body);
  };
}

const toPattern = (path: string): RegExp => new RegExp(`^${path.replaceAll('.', '\\.').replaceAll(/:\w+/g, '[^/]+')}$`);
