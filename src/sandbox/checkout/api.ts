import { createHash, timingSafeEqual } from 'node:crypto';
import type { FastifyInstance, FastifyRequest } from 'fastify';
import { z } from 'zod';
import { ApiError, toApiError } from './api-error.ts';
import { newRefund } from './clawbacks.ts';
import { chargeIdOf, type ObjectKinds } from './objects.ts';
import { integer, metadata, readParameters, text } from './parameters.ts';
import { createSession, current, expireSession, sessionParameters } from './sessions.ts';
import type { Change, Store } from './store.ts';

export const API_PREFIX = '/v1';

const LATEST = Number.MAX_SAFE_INTEGER;

const time = integer(0, LATEST).optional();
const createdFilter = z.strictObject({ gte: time, lt: time }).default({});
const word = text(200).optional();

const Page = z.strictObject({ limit: integer(1, 100).default(10), starting_after: word, created: createdFilter });

interface Resource {
  readonly path: string;
  readonly kind: keyof ObjectKinds;
  /** Undefined if there is no list. */
  readonly filters?: z.ZodRawShape;
  /** The field with an id that `expand` replaces by its object. */
  readonly reference?: 'latest_charge' | 'source';
}

/** What the service reads. */
const RESOURCES: readonly Resource[] = [
  {
    path: '/checkout/sessions',
    kind: 'checkout.session',
    filters: { status: word, payment_intent: word, customer_details: z.strictObject({ email: text(800) }).optional() },
  },
  { path: '/payment_intents', kind: 'payment_intent', reference: 'latest_charge' },
  { path: '/refunds', kind: 'refund', filters: { payment_intent: word } },
  { path: '/disputes', kind: 'dispute', filters: { payment_intent: word } },
  {
    path: '/balance_transactions',
    kind: 'balance_transaction',
    filters: { source: word, currency: word },
    reference: 'source',
  },
];

const refundParameters = z.strictObject({ payment_intent: text(200), amount: integer(1, LATEST).optional(), metadata });

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
    const { path, kind, filters, reference } = resource;
    app.get<ById>(`${path}/:id`, async (request) => {
      const wanted = readParameters(z.strictObject(expandable(reference)), queryOf(request));
      const object = shown(store.get(kind, request.params.id));
      return wanted.expand ? expanded(store, object, reference) : object;
    });
    if (filters) app.get(path, async (request) => list(store, resource, queryOf(request)));
  }

  app.post('/checkout/sessions', async (request) => {
    const given = readParameters(z.strictObject(sessionParameters), formText(request));
    return saveOnce(store, request, () => createSession(options.origin, given));
  });
  app.post<ById>('/checkout/sessions/:id/expire', async (request) => {
    readParameters(z.strictObject({}), formText(request));
    return saveOnce(store, request, () => expireSession(store.get('checkout.session', request.params.id, 'session')));
  });
  app.post('/refunds', async (request) => {
    const given = readParameters(refundParameters, formText(request));
    return saveOnce(store, request, () =>
      newRefund(store, store.get('charge', chargeIdOf(given.payment_intent), 'payment_intent'), given),
    );
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

function list(store: Store, { path, kind, filters, reference }: Resource, query: string): object {
  const parameters = Page.extend({ ...expandable(reference && `data.${reference}`), ...filters });
  const wanted = readParameters(parameters, query) as z.output<typeof Page> & { readonly expand?: unknown };
  const { limit, starting_after: after, created, expand, ...about } = wanted;
  let newestFirst = store.all(kind).map(shown).reverse();
  if (after !== undefined) {
    const { id } = store.get(kind, after, 'starting_after');
    newestFirst = newestFirst.slice(newestFirst.findIndex((object) => object.id === id) + 1);
  }
  const { gte = 0, lt = LATEST } = created;
  const found = newestFirst.filter((object) => object.created >= gte && object.created < lt && matches(object, about));
  const page = found.slice(0, limit);
  const data = expand ? page.map((object) => expanded(store, object, reference)) : page;
  return { object: 'list', url: `${API_PREFIX}${path}`, has_more: found.length > limit, data };
}

function matches(fields: object | null, wanted: object): boolean {
  return Object.entries(wanted).every(([name, value]) => {
    const field = (fields as Fields | null)?.[name];
    if (typeof value === 'object') return matches(field as object | null, value);
    return String(field).toLowerCase() === String(value).toLowerCase();
  });
}

const expandable = (path: string | undefined): { readonly expand?: z.ZodType } =>
  path === undefined ? {} : { expand: z.strictObject({ 0: z.literal(path) }).optional() };

function expanded(store: Store, object: object, reference: string = ''): object {
  const id = String((object as Fields)[reference]);
  const kinds = ['charge', 'refund', 'dispute'] as const;
  const found = kinds.map((kind) => store.find(kind, id)).find(Boolean);
  return found ? { ...object, [reference]: found } : object;
}

const shown = <Shown extends ObjectKinds[keyof ObjectKinds]>(object: Shown) =>
  object.object === 'checkout.session' ? current(object) : object;

const sha256 = (data: string) => createHash('sha256').update(data).digest();
const formText = (request: FastifyRequest): string => (typeof request.body === 'string' ? request.body : '');
const queryOf = (request: FastifyRequest): string => request.raw.url?.split('?', 2)[1] ?? '';
