import { createHash, randomBytes, timingSafeEqual } from 'node:crypto';
import type { FastifyInstance, FastifyRequest } from 'fastify';
import { ApiError, invalidParameter } from './api-error.ts';
import { parseForm } from './form.ts';
import { Parameters } from './parameters.ts';
import { createSession, expire, now, present, type Session, statusOf } from './session.ts';
import type { State, Store } from './session-store.ts';

export const API_PREFIX = '/v1';
const SESSIONS = '/checkout/sessions';
const REPLY_LIFETIME_SECONDS = 24 * 60 * 60;

interface ById {
  readonly Params: { readonly id: string };
}

/** The part of Stripe's API that sells one payment through hosted checkout: create, retrieve, list and expire a session. */
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

  const show = (session: Session) => present(session, options.origin);

  app.post(SESSIONS, async (request, reply) =>
    reply.send(
      await once(store, request, (state) => {
        const session = createSession(bodyOf(request));
        return { state: { ...state, sessions: [...state.sessions, session] }, result: show(session) };
      }),
    ),
  );

  app.post<ById>(`${SESSIONS}/:id/expire`, async (request, reply) =>
    reply.send(
      await once(store, request, (state) => {
        const parameters = bodyOf(request);
        parameters.values('expand', 20);
        parameters.end();
        const expired = expire(existing(store, request.params.id));
        return { state: withSession(state, expired), result: show(expired) };
      }),
    ),
  );

  app.get<ById>(`${SESSIONS}/:id`, async (request) => {
    const parameters = queryOf(request);
    parameters.values('expand', 20);
    parameters.end();
    return show(existing(store, request.params.id));
  });

  app.get(SESSIONS, async (request) => {
    const { found, hasMore } = listSessions(store, queryOf(request));
    return { object: 'list', url: `${API_PREFIX}${SESSIONS}`, has_more: hasMore, data: found.map(show) };
  });
}

/** The state with this session in the place of its former version. */
export function withSession(state: State, changed: Session): State {
  return { ...state, sessions: state.sessions.map((each) => (each.id === changed.id ? changed : each)) };
}

const bodyOf = (request: FastifyRequest) => new Parameters(parseForm(formText(request)));
const queryOf = (request: FastifyRequest) => new Parameters(parseForm(request.raw.url?.split('?', 2)[1] ?? ''));
const formText = (request: FastifyRequest) => (typeof request.body === 'string' ? request.body : '');

function existing(store: Store, id: string): Session {
  const session = store.findSession(id);
  if (session) return session;
  throw new ApiError(404, 'invalid_request_error', 'No such checkout.session.', {
    code: 'resource_missing',
    param: 'session',
  });
}

/**
 * Changes the state once per Idempotency-Key: a repeated call gets the first one's answer, and another call under the
 * same key is refused (https://docs.stripe.com/api/idempotent_requests). Calls that fail are not remembered.
 */
function once<Result>(
  store: Store,
  request: FastifyRequest,
  change: (state: State) => { state: State; result: Result },
): Promise<unknown> {
  const key = request.headers['idempotency-key'];
  if (typeof key !== 'string') return store.update(change);
  if (key.length > 255) {
    throw new ApiError(400, 'invalid_request_error', 'The Idempotency-Key may be at most 255 characters long.');
  }
  const fingerprint = sha256(`${request.method} ${request.url}\n${formText(request)}`).toString('hex');
  return store.update<unknown>((state) => {
    const replies = state.replies.filter((reply) => reply.created > now() - REPLY_LIFETIME_SECONDS);
    const known = replies.find((reply) => reply.key === key);
    if (known && known.fingerprint !== fingerprint) {
      throw new ApiError(
        400,
        'idempotency_error',
        'Keys for idempotent requests can only be used with the same parameters they were first used with.',
      );
    }
    if (known) return { state, result: known.body };
    const { state: next, result } = change(state);
    const reply = { key, fingerprint, created: now(), body: result };
    return { state: { ...next, replies: [...replies, reply] }, result };
  });
}

/** Newest first. */
function listSessions(store: Store, parameters: Parameters): { found: Session[]; hasMore: boolean } {
  const limit = parameters.integer('limit', 1, 100) ?? 10;
  const after = parameters.text('starting_after', 200);
  const status = parameters.choice('status', ['open', 'complete', 'expired']);
  const created = parameters.group('created');
  const bounds = (['gt', 'gte', 'lt', 'lte'] as const).map(
    (name) => [name, created?.integer(name, 0, Number.MAX_SAFE_INTEGER)] as const,
  );
  parameters.values('expand', 20);
  created?.end();
  parameters.end();

  let sessions = store.state.sessions.toReversed();
  if (after !== undefined) {
    const position = sessions.findIndex((session) => session.id === after);
    if (position < 0) throw invalidParameter('starting_after', 'resource_missing', 'No such checkout.session.');
    sessions = sessions.slice(position + 1);
  }
  const matching = sessions.filter(
    (session) =>
      (status === undefined || statusOf(session) === status) &&
      bounds.every(([name, bound]) => bound === undefined || COMPARE[name](session.created, bound)),
  );
  return { found: matching.slice(0, limit), hasMore: matching.length > limit };
}

const COMPARE = {
  gt: (value: number, bound: number) => value > bound,
  gte: (value: number, bound: number) => value >= bound,
  lt: (value: number, bound: number) => value < bound,
  lte: (value: number, bound: number) => value <= bound,
};

function toApiError(error: unknown): ApiError {
  if (error instanceof ApiError) return error;
  const status = error instanceof Error && 'statusCode' in error ? Number(error.statusCode) : 500;
  if (status >= 400 && status < 500) return new ApiError(status, 'invalid_request_error', 'The request is malformed.');
  return new ApiError(500, 'api_error', 'The local checkout could not do that. Try again.');
}

const sha256 = (text: string) => createHash('sha256').update(text).digest();
