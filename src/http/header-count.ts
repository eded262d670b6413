import type { FastifyReply, FastifyRequest } from 'fastify';
import { errorBody } from './structured-error.ts';

/** Beyond them Node would leave headers out without a word, X-Forwarded-For among them. */
export const MAX_HEADERS = 200;

export const hasTooManyHeaders = ({ raw }: FastifyRequest): boolean => raw.rawHeaders.length > 2 * MAX_HEADERS;

/** Whose request it is can't be told, so that nobody is counted for it. */
export const refuseHeaders = (reply: FastifyReply): FastifyReply =>
  reply
    .code(431)
    .header('connection', 'close')
    .send(
      errorBody('REQUEST_TOO_LARGE', `A request has at most ${MAX_HEADERS} headers.`, {
        field: 'headers',
        rule: 'maxItems',
        maximum: MAX_HEADERS,
      }),
    );
