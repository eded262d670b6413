import { createHash, timingSafeEqual } from 'node:crypto';
import type { FastifyInstance, FastifyRequest } from 'fastify';
import { z } from 'zod';
import { ApiError, toApiError } from './api-error.ts';
import { newRefund } from './clawbacks.ts';
import { chargeIdOf, type ObjectKinds } from './objects.ts';
import { integer, listOf, metadata, readParameters, text } from './parameters.ts';
import { createSession, current, expireSession, sessionParameters } from './sessions.ts';
import type { Change, Store } from './store.ts';

export const API_PREFIX = '/v1';

const LATEST = Number.MAX_SAFE_INTEGER;

const expand = listOf(text(200), 20).default([]);
const time = integer(0, LATEST).optional();
const createdFilter = z.strictObject({ gt: time, gte: time, lt: time, lte: time }).default({});
const word = text(200).optional();
const aboutPayment = { charge: word, payment_intent: word };

const PAGE = { limit: integer(1, 100).default(10), starting_after: word, created: createdFilter, expand };
const Page = z.strictObject(PAGE);

interface Resource {
  readonly path: string;
  readonly kind: keyof ObjectKinds;
  readonly filters?: z.ZodRawShape;
}

const RESOURCES: readonly Resource[] = [
  {
    path: '/checkout/sessions',
    kind: 'checkout.session',
    filters: { status: word, payment_intent: word, customer_details: z.strictObject({ email: text(800) }).optional() },
  },
  { path: '/payment_intents', kind: 'payment_intent' },
  { path: '/charges', kind: 'charge' },
  { path: '/refunds', kind: 'refund', filters: aboutPayment },
  { path: '/disputes', kind: 'dispute', filters: aboutPayment },
  { path: '/balance_transactions', kind: 'balance_transaction', filters: { type: word, source: word, currency: word } },
];

const refundParameters = z.strictObject({
  payment_intent: text(200),
  amount: integer(1, LATEST).optional(),
  metadata,
  expand,
});

type Fields = Record<string, unknown>;

interface ById {
  readonly Params: { readonly id: string };
}

export function serveApi(app: FastifyInstance, store: Store, options: { secretKey: string; origin: string }): void {
  const authorized = sha256(`Bearer ${options.secretKey}`);
  app.addHook('onRequest', async (request, reply) => {
    reply.header('cache-control', 'no-store');
    if (!timingSafeEqual(sha256(request.headers.authorization ?? ''), authorized)) {
      throw new ApiError(401, 'Invalid or missing API key: send `Authorization: Bearer <key>`.');
    }
  });
  app.setErrorHandler((error, _request, reply) => {
    const answer = toApiError(error);
    return reply.code(answer.status).send(answer.toJSON());
  });
  app.setNotFoundHandler(({ method }) => {
    throw new ApiError(404, `The local checkout has no ${method} at this path.`);
  });

  for (const resource of RESOURCES) {
    const { path, kind, filters } = resource;
    app.get<ById>(`${path}/:id`, async (request) => {
      const wanted = readParameters(z.strictObject({ expand }), queryOf(request));
      return expanded(store, shown(store.get(kind, request.params.id)), wanted.expand);
    });
    if (filters) app.get(path, async (request) => list(store, resource, queryOf(request)));
  }

  app.post('/checkout/sessions', async (request) => {
    const given = readParameters(z.strictObject({ ...sessionParameters, expand }), formText(request));
    const session = saveOnce(store, request, () => createSession(options.origin, given));
    return expanded(store, session, given.expand);
  });
  app.post<ById>('/checkout/sessions/:id/expire', async (request) => {
    const given = readParameters(z.strictObject({ expand }), formText(request));
    const session = saveOnce(store, request, () =>
      expireSession(store.get('checkout.session', request.params.id, 'session')),
    );
    return expanded(store, session, given.expand);
  });
  app.post('/refunds', async (request) => {
    const given = readParameters(refundParameters, formText(request));
    const refund = saveOnce(store, request, () =>
      newRefund(store, store.get('charge', chargeIdOf(given.payment_intent), 'payment_intent'), given),
    );
    return expanded(store, refund, given.expand);
  });
}

/** Once per Idempotency-Key (https://docs.stripe.com/api/idempotent_requests). */
function saveOnce(store: Store, request: FastifyRequest, work: () => Change): object {
  const key = request.headers['idempotency-key'];
  if (typeof key !== 'string') return store.save(...work());
  if (key.length > 255) throw new ApiError(400, 'The Idempotency-Key may be at most 255 characters long.');
  const fingerprint = sha256(`${request.method} ${request.url}\n${formText(request)}`).toString('hex');
  return store.saveOnce(key, fingerprint, work);
}

function list(store: Store, { path, kind, filters }: Resource, query: string): object {
  const wanted = readParameters(z.strictObject({ ...filters, ...PAGE }), query) as z.output<typeof Page>;
  const { limit, starting_after: after, created, expand, ...about } = wanted;
  let newestFirst = store.all(kind).map(shown).reverse();
  if (after !== undefined) {
    const { id } = store.get(kind, after, 'starting_after');
    newestFirst = newestFirst.slice(newestFirst.findIndex((object) => object.id === id) + 1);
  }
  const found = newestFirst.filter((object) => isWithin(created, object.created) && matches(object, about));
  const data = found.slice(0, limit);
  return expanded(store, { object: 'list', url: `${API_PREFIX}${path}`, has_more: found.length > limit, data }, expand);
}

const isWithin = ({ gt, gte, lt, lte }: z.output<typeof createdFilter>, created: number): boolean =>
  created > (gt ?? -1) && created >= (gte ?? 0) && created < (lt ?? Infinity) && created <= (lte ?? Infinity);

function matches(fields: object | null, wanted: object): boolean {
  return Object.entries(wanted).every(([name, value]) => {
    const field = (fields as Fields | null)?.[name];
    if (typeof value === 'object') return matches(field as object | null, value);
    return String(field).toLowerCase() === String(value).toLowerCase();
  });
}

function expanded(store: Store, object: object, paths: readonly string[]): object {
  if (paths.length === 0) return object;
  const copy = structuredClone(object);
  for (const path of paths) expandPath(store, copy as Fields, path.split('.'), path);
  return copy;
}

function expandPath(store: Store, fields: Fields, [step, ...further]: readonly string[], path: string): void {
  if (step === undefined) return;
  const value = fields[step];
  if (step === 'data' && Array.isArray(value)) {
    for (const each of value) expandPath(store, each, further, path);
    return;
  }
  if (value === null) return;
  const found = typeof value === 'string' ? structuredClone(findAny(store, value)) : value;
  if (typeof found !== 'object' || !('object' in found)) {
    throw new ApiError(400, `This property cannot be expanded (${path}).`, { param: 'expand' });
  }
  fields[step] = found;
  expandPath(store, found as Fields, further, path);
}

function findAny(store: Store, id: string): object | undefined {
  for (const { kind } of RESOURCES) {
    const found = store.find(kind, id);
    if (found) return found;
  }
  return undefined;
}

const shown = <Shown extends ObjectKinds[keyof ObjectKinds]>(object: Shown) =>
  object.object === 'checkout.session' ? current(object) : object;

const sha256 = (data: string) => createHash('sha256').update(data).digest();
const formText = (request: FastifyRequest): string => (typeof request.body === 'string' ? request.body : '');
const queryOf = (request: FastifyRequest): string => request.raw.url?.split('?', 2)[1] ?? '';
