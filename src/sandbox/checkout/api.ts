import { randomBytes, timingSafeEqual } from 'node:crypto';
import type { FastifyInstance } from 'fastify';
import { ApiError } from './api-error.ts';
import { serveBalance } from './balance-api.ts';
import { serveDisputes } from './disputes-api.ts';
import { servePayments } from './payments-api.ts';
import { serveRefunds } from './refunds-api.ts';
import { sha256 } from './request.ts';
import { serveSessions } from './sessions-api.ts';
import type { Store } from './store.ts';

/** The part of Stripe's API that sells one payment through hosted checkout, and tells what became of it. */
export function serveApi(app: FastifyInstance, store: Store, options: { secretKey: string; origin: string }): void {
  const authorized = sha256(`Bearer ${options.secretKey}`);
  app.addHook('onRequest', async (request, reply) => {
    reply.headers({ 'request-id': `req_${randomBytes(7).toString('hex')}`, 'cache-control': 'no-store' });
    if (!timingSafeEqual(sha256(request.headers.authorization ?? ''), authorized)) {
      throw new ApiError(
        401,
        'invalid_request_error',
        'Invalid or missing API key: send `Authorization: Bearer <key>`.',
      );
    }
  });
  app.setErrorHandler((error, _request, reply) => {
    const answer = toApiError(error);
    return reply.code(answer.status).send(answer.toJSON());
  });
  app.setNotFoundHandler((request) => {
    throw new ApiError(404, 'invalid_request_error', `The local checkout has no ${request.method} at this path.`);
  });

  serveSessions(app, store, options.origin);
  servePayments(app, store);
  serveRefunds(app, store);
  serveDisputes(app, store);
  serveBalance(app, store);
}

function toApiError(error: unknown): ApiError {
  if (error instanceof ApiError) return error;
  const status = error instanceof Error && 'statusCode' in error ? Number(error.statusCode) : 500;
  if (status >= 400 && status < 500) return new ApiError(status, 'invalid_request_error', 'The request is malformed.');
  return new ApiError(500, 'api_error', 'The local checkout could not do that. Try again.');
}
