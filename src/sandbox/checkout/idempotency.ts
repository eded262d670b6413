import type { FastifyRequest } from 'fastify';
import { ApiError } from './api-error.ts';
import { formText, sha256 } from './request.ts';
import { now } from './session.ts';
import { type Change, REPLY_LIFETIME_SECONDS, type State, type Store } from './store.ts';

/**
 * Changes the state once per Idempotency-Key: a repeated call gets the first one's answer, and another call under the
 * same key is refused (https://docs.stripe.com/api/idempotent_requests). Calls that fail are not remembered.
 */
export function once(
  store: Store,
  request: FastifyRequest,
  decide: (state: State) => { change: Change; result: object },
): Promise<unknown> {
  const key = request.headers['idempotency-key'];
  if (typeof key !== 'string') return store.update(decide);
  if (key.length > 255) {
    throw new ApiError(400, 'invalid_request_error', 'The Idempotency-Key may be at most 255 characters long.');
  }
  const fingerprint = sha256(`${request.method} ${request.url}\n${formText(request)}`).toString('hex');
  return store.update<unknown>((state) => {
    const known = state.replies.get(key);
    if (known && known.created > now() - REPLY_LIFETIME_SECONDS) {
      if (known.fingerprint === fingerprint) return { result: known.body };
      throw new ApiError(
        400,
        'idempotency_error',
        'Keys for idempotent requests can only be used with the same parameters they were first used with.',
      );
    }
    const { change, result } = decide(state);
    return { change: { ...change, replies: [{ key, fingerprint, created: now(), body: result }] }, result };
  });
}
