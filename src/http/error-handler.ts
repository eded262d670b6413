import type { FastifyError, FastifyReply, FastifyRequest } from 'fastify';
import { isNotSetUp, isUnavailable } from '../db/database-errors.ts';
import { sendFailure } from './reply.ts';
import { type ErrorCode, type ErrorDetails, failure } from './structured-error.ts';

/** What Fastify itself refuses, by its error code (R4); the rest of its 4xx is a malformed request. */
const FRAMEWORK_FAULTS: Readonly<Record<string, { code: ErrorCode; message: string }>> = {
  FST_ERR_CTP_BODY_TOO_LARGE: { code: 'REQUEST_TOO_LARGE', message: 'The body is larger than this operation takes.' },
  FST_ERR_CTP_INVALID_MEDIA_TYPE: { code: 'UNSUPPORTED_CONTENT_TYPE', message: 'content-type is not valid.' },
  FST_ERR_BAD_URL: { code: 'INVALID_REQUEST', message: 'The path is not valid percent-encoded UTF-8.' },
};

/** Turns whatever was thrown into a declared structured error that shows nothing of the inside (R10). */
export function handleError(error: FastifyError, request: FastifyRequest, reply: FastifyReply): FastifyReply {
  const { code, message, details } = describe(error, request);
  const answer = failure(code, message, details);
  if (answer.status >= 500) request.log.error({ err: error }, 'request failed');
  const route = request.routeOptions.config?.contract;
  return sendFailure(route, answer, reply);
}

function describe(
  error: FastifyError,
  request: FastifyRequest,
): { code: ErrorCode; message: string; details: ErrorDetails } {
  const route = request.routeOptions.config?.contract;
  if (error.statusCode && error.statusCode < 500) {
    const fault = FRAMEWORK_FAULTS[error.code] ?? { code: 'INVALID_REQUEST', message: 'The request is malformed.' };
    const limit = request.routeOptions.bodyLimit;
    const details = fault.code === 'REQUEST_TOO_LARGE' ? { field: 'body', rule: 'maxBytes', maximum: limit } : null;
    return { ...fault, details };
  }
  const unready = route?.responses[503];
  const mayBeUnready = unready?.errorCodes?.includes('CONFIG_ERROR') || unready?.produces.includes('text/html');
  if (mayBeUnready && isNotSetUp(error)) {
    return {
      code: 'CONFIG_ERROR',
      message: "The database lacks the service's tables, or refuses its credentials. The operator has to repair it.",
      details: { reason: 'database_not_set_up', command: 'npm run migrate' },
    };
  }
  if (mayBeUnready && isUnavailable(error)) {
    return {
      code: 'CONFIG_ERROR',
      message: 'The database can not be reached. Try again in a moment.',
      details: { reason: 'database_unavailable' },
    };
  }
  return {
    code: 'INTERNAL_ERROR',
    message: 'Something failed inside the service. Quote the x-trace-id of this answer when you ask for help.',
    details: null,
  };
}
