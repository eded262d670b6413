import { randomUUID } from 'node:crypto';
import { createServer as createHttpServer } from 'node:http';
import Fastify, {
  type FastifyBaseLogger,
  type FastifyInstance,
  type FastifyReply,
  type FastifyRequest,
  LogController,
} from 'fastify';
import type { OperationResult, Operations } from '../contract/operations.ts';
import { type Route, routes } from '../contract/routes.ts';
import type { OpenApiDocument } from '../contract/types.ts';
import type { Slot } from '../limits/slot.ts';
import type { Metrics } from '../metrics.ts';
import type { RunningWork } from '../running-work.ts';
import { prefersHtml } from './accept.ts';
import { ResponseAnswer } from './answer.ts';
import { isBare, type StandIn } from './bare-request.ts';
import { decodeBody, isPercentEncoded, readContentType, refuseContentType } from './body.ts';
import { answerClientError, answerConnect, answerExpectations, mayBegin } from './client-errors.ts';
import { Connections } from './connections.ts';
import type { OperationContext } from './context.ts';
import { readContractDocument } from './contract-document.ts';
import { EdgeLimiter, type Trial } from './edge-limiter.ts';
import { handleError } from './error-handler.ts';
import { type ErrorCode, errorBody, type Failure, failure } from './errors.ts';
import { EDGE_HEADERS } from './headers.ts';
import { createNotFoundHandler } from './not-found.ts';
import { rateLimited, rateLimitHeaders } from './rate-limit.ts';
import { sendFailure, sendResult } from './reply.ts';
import { RequestRecord, refusalRecorder } from './request-record.ts';
import { namesPath, pathAndQuery, queryOf } from './target.ts';
import { violation } from './validation.ts';

declare module 'fastify' {
  interface FastifyContextConfig {
    contract?: Route;
  }
  interface FastifyRequest {
    /** The client's minute was used up when the request came; whether that matters is for the operation to say. */
    overEdgeLimit: { readonly slot: Slot; readonly trial: Trial } | null;
    record: RequestRecord;
  }
}

/** The largest request line with headers: 1500 CJK characters in a query, and a payment beside them (R5). */
const MAX_HEADER_BYTES = 65_536;
/** Beyond them Node would leave headers out without a word, X-Forwarded-For among them. */
const MAX_HEADERS = 200;
const DEFAULT_BODY_LIMIT = 65_536;
const HEADERS_TIMEOUT_MS = 20_000;
const REQUEST_TIMEOUT_MS = 30_000;
const KEEP_ALIVE_TIMEOUT_MS = 75_000;
const BROKEN =
  'What follows this request on its connection is not HTTP. Is content-length right? Nothing was done or charged.';
const EMPTY = Buffer.alloc(0);

export interface ServerOptions {
  readonly logger: FastifyBaseLogger;
  /** Public origin of this deployment, which the served contract names. */
  readonly baseUrl: string;
  /** Addresses and networks whose X-Forwarded-For is believed (R39). */
  readonly trustProxy: readonly string[];
  /** Requests per client and minute. */
  readonly edgeRateLimitMax: number;
  /** Connections that are open at a time; what is over it is closed at once. */
  readonly maxConnections: number;
  /** How long a client may read nothing while there are bytes for it. */
  readonly clientStallMs: number;
  readonly longestOperationMs: number;
  /** What a request that says nothing at all is taken for, by operationId; where there is nothing it is refused. */
  readonly standIns: Readonly<Record<string, StandIn>>;
  /** Every operation that runs is added to it. */
  readonly work: RunningWork;
  readonly metrics: Metrics;
}

type Operation = (request: unknown, context: OperationContext) => Promise<OperationResult>;

/**
 * The HTTP edge: serves each operation of the contract, and refuses everything else with a declared answer. The
 * operations are made when the contract has been read.
 */
export async function createServer(
  operationsOf: (contract: OpenApiDocument) => Operations,
  options: ServerOptions,
): Promise<FastifyInstance> {
  const limiter = new EdgeLimiter(options.edgeRateLimitMax);
  const connections = new Connections({ ...options, stallMs: options.clientStallMs });
  const recordRefusal = refusalRecorder(options.logger, options.metrics);
  const app = Fastify({
    loggerInstance: options.logger,
    logController: new LogController({ disableRequestLogging: true, requestIdLogLabel: 'traceId' }),
    genReqId: () => randomUUID(),
    requestIdHeader: false,
    trustProxy: options.trustProxy.length > 0 ? [...options.trustProxy] : false,
    bodyLimit: DEFAULT_BODY_LIMIT,
    routerOptions: { maxParamLength: MAX_HEADER_BYTES },
    serverFactory: (onRequest) => {
      const server = createHttpServer(
        {
          maxHeaderSize: MAX_HEADER_BYTES,
          requireHostHeader: false,
          headersTimeout: HEADERS_TIMEOUT_MS,
          requestTimeout: REQUEST_TIMEOUT_MS,
          keepAliveTimeout: KEEP_ALIVE_TIMEOUT_MS,
        },
        onRequest,
      );
      server.maxHeadersCount = MAX_HEADERS + 1;
      answerExpectations(server, recordRefusal);
      answerConnect(server, recordRefusal);
      connections.watch(server, (error, socket) => answerClientError(error, socket, recordRefusal));
      return server;
    },
    return503OnClosing: false,
    // `connections` hands on what is an error.
    clientErrorHandler: () => {},
    frameworkErrors: (error, request, reply) => {
      request.record = new RequestRecord(request, reply, options.metrics);
      reply.headers({ ...EDGE_HEADERS, 'x-trace-id': request.id });
      if (hasTooManyHeaders(request)) return refuseHeaders(reply);
      const slot = takeEdgeSlot(limiter, request);
      return slot
        ? sendFailure(undefined, refuseAtEdge(slot, options.metrics, reply), reply, false)
        : handleError(error, request, reply);
    },
  });
  app.setErrorHandler(handleError);
  app.setNotFoundHandler(createNotFoundHandler(routes));
  app.removeAllContentTypeParsers();
  app.addContentTypeParser('*', { parseAs: 'buffer' }, (_request, body, done) => done(null, body));

  const operations = operationsOf(await readContractDocument(app, options.baseUrl));
  addHooks(app, limiter, options);
  connections.start();
  app.addHook('preClose', async () => connections.stop());
  app.addHook('onClose', async () => connections.close());
  for (const route of routes) {
    const group = operations[route.tag as keyof Operations] as unknown as Record<string, Operation>;
    const operation = group[route.operationId]?.bind(group) as Operation;
    app.route({
      method: route.method,
      url: route.path,
      config: { contract: route },
      exposeHeadRoute: route.method === 'GET' && !route.noHead,
      ...(route.bodyLimit && { bodyLimit: route.bodyLimit }),
      handler: (request, reply) =>
        options.work.add(request.record.follow(serve(route, operation, request, reply, { ...options, limiter }))),
    });
  }
  return app;
}

function addHooks(app: FastifyInstance, limiter: EdgeLimiter, options: ServerOptions): void {
  let warned = options.trustProxy.length > 0;
  app.decorateRequest('overEdgeLimit', null);
  app.decorateRequest('record');
  app.addHook('onRequest', async (request, reply) => {
    request.record = new RequestRecord(request, reply, options.metrics);
    reply.headers(EDGE_HEADERS).header('x-trace-id', request.id);
    if (hasTooManyHeaders(request)) return refuseHeaders(reply);
    // Node's parser drops what came in one packet with a request for an upgrade.
    if (request.headers.upgrade !== undefined) reply.header('connection', 'close');
    if (!warned && request.headers['x-forwarded-for'] !== undefined) {
      warned = true;
      request.log.warn('X-Forwarded-For arrived, but TRUST_PROXY is unset: every client has the address of the proxy');
    }
    const route = request.routeOptions.config?.contract;
    const refuse = (refusal: Failure<ErrorCode>) => {
      const answer = request.overEdgeLimit ? refuseAtEdge(request.overEdgeLimit.slot, options.metrics, reply) : refusal;
      return sendFailure(route, answer, reply, prefersHtml(request.headers.accept));
    };
    const overLimit = takeEdgeSlot(limiter, request);
    if (overLimit) {
      const trial = asksForExemption(route, request) ? limiter.beginTrial(request.ip) : undefined;
      if (!trial) return refuse(refuseAtEdge(overLimit, options.metrics, reply));
      request.overEdgeLimit = { slot: overLimit, trial };
      reply.raw.once('close', () => trial.end('failed'));
    }
    if (request.raw.httpVersion === '1.1' && request.headers.host === undefined) {
      return refuse(failure('INVALID_REQUEST', 'The host header is missing.', { field: 'host', rule: 'required' }));
    }
    if (!namesPath(request.url, request.method)) {
      const details = { field: 'url', rule: 'path' };
      return refuse(failure('INVALID_REQUEST', 'The request target must be a path, which starts with /.', details));
    }
    if (request.url.includes('#')) {
      const details = { field: 'url', rule: 'no fragment' };
      return refuse(failure('INVALID_REQUEST', 'A request has no fragment; encode # as %23.', details));
    }
    if (!route) return;
    if (hasEmptyParameter(request)) return reply.callNotFound();
    if (route.query.length > 0 && !isPercentEncoded(queryOf(request.url))) {
      const details = { field: 'query', rule: 'percent-encoding' };
      return refuse(failure('INVALID_REQUEST', 'The query is not valid percent-encoded UTF-8.', details));
    }
    if (route.consumes.length > 0 && (hasBody(request) || request.headers['content-type'] !== undefined)) {
      const refusal = refuseContentType(request.headers, route.consumes);
      if (refusal) return refuse(refusal);
    }
  });
}

/** Fastify finds a route also for `/credits/`, which no path of the contract is. */
const hasEmptyParameter = ({ params }: FastifyRequest): boolean => Object.values(params as object).includes('');

const hasTooManyHeaders = ({ raw }: FastifyRequest): boolean => raw.rawHeaders.length > 2 * MAX_HEADERS;

/** Whose request it is can't be told, so that nobody is counted for it. */
const refuseHeaders = (reply: FastifyReply): FastifyReply =>
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

/** Counts the request at the edge; tells the slot that was refused since its client's minute is used up. Preflights are free. */
function takeEdgeSlot(limiter: EdgeLimiter, request: FastifyRequest): Slot | undefined {
  if (request.method === 'OPTIONS' && request.headers['access-control-request-method'] !== undefined) return undefined;
  const slot = limiter.take(request.ip);
  return slot.allowed ? undefined : slot;
}

const asksForExemption = (route: Route | undefined, request: FastifyRequest): boolean =>
  route?.edgeExempt !== undefined && request.headers[route.edgeExempt] !== undefined;

function refuseAtEdge(slot: Slot, metrics: Metrics, reply: FastifyReply) {
  metrics.rateLimitRefused(slot.scope);
  const { headers, ...refusal } = rateLimited(slot);
  reply.headers({ ...rateLimitHeaders(slot), ...headers });
  return refusal;
}

const hasBody = (request: FastifyRequest): boolean =>
  request.headers['transfer-encoding'] !== undefined || Number(request.headers['content-length'] ?? 0) > 0;

async function serve(
  route: Route,
  operation: Operation,
  request: FastifyRequest,
  reply: FastifyReply,
  { limiter, metrics, standIns }: ServerOptions & { limiter: EdgeLimiter },
) {
  const refuse = (refusal: Failure<ErrorCode>) =>
    sendFailure(route, refusal, reply, prefersHtml(request.headers.accept));
  if (!mayBegin(request.raw, reply.raw)) {
    reply.header('connection', 'close');
    return refuse(failure('INVALID_REQUEST', BROKEN, { field: 'body', rule: 'framing' }));
  }
  const standIn = standIns[route.operationId];
  const bare = standIn && isBare(request, standIn) ? standIn : undefined;
  const read = bare ? { request: standFor(request, bare) } : readRequest(route, request);
  let result: OperationResult;
  try {
    result =
      'request' in read
        ? await operation(read.request, contextOf(request, reply, limiter, bare !== undefined))
        : read.failure;
  } catch (error) {
    // What fails inside the service tells nothing of the client.
    request.overEdgeLimit?.trial.end(undefined);
    throw error;
  }
  if (request.overEdgeLimit) {
    request.overEdgeLimit.trial.end('failed');
    return refuse(refuseAtEdge(request.overEdgeLimit.slot, metrics, reply));
  }
  return 'request' in read ? sendResult(route, result, reply) : refuse(read.failure);
}

const standFor = ({ params, headers }: FastifyRequest, { query, body }: StandIn) => ({ params, query, headers, body });

function contextOf(
  request: FastifyRequest,
  reply: FastifyReply,
  limiter: EdgeLimiter,
  isBare: boolean,
): OperationContext {
  return {
    traceId: request.id,
    method: request.method,
    ip: request.ip,
    headers: request.headers,
    url: pathAndQuery(request.url),
    bytes: Buffer.isBuffer(request.body) ? request.body : EMPTY,
    isBare,
    prefersHtml: prefersHtml(request.headers.accept),
    log: request.log,
    answer: new ResponseAnswer(request.raw.socket, reply.raw, () => request.record.brokeOff()),
    note: (facts) => request.record.note(facts),
    follow: (work) => request.record.follow(work),
    setHeader: (name, value) => void reply.header(name, value),
    isOverEdgeLimit: request.overEdgeLimit !== null,
    exemptFromEdgeLimit: () => {
      if (request.overEdgeLimit) {
        request.overEdgeLimit.trial.end('verified');
        request.overEdgeLimit = null;
      } else limiter.giveBack(request.ip);
    },
    rememberCredential: (shown) => limiter.remember(request.ip, shown),
  };
}

/** Decodes and validates in the order of R7; nothing has been touched when a rule is broken. */
function readRequest(route: Route, request: FastifyRequest): { request: unknown } | { failure: Failure<ErrorCode> } {
  const body = readBody(route, request);
  if ('failure' in body) return body;
  const query = request.query as Record<string, unknown>;
  const { validate } = route;
  const parts = [
    ['path', validate.params, request.params],
    ['query', validate.query, query],
    ['header', validate.headers, request.headers],
    ['body', validate.body?.[body.type], body.value],
  ] as const;
  for (const [location, validator, value] of parts) {
    if (!validator || (location === 'body' && value === undefined)) continue;
    if (!validator(value)) {
      const { code, message, details } = violation(validator.errors ?? [], location);
      return { failure: failure(code, message, details) };
    }
  }
  const value = route.consumes.length > 1 ? { type: body.type, value: body.value } : body.value;
  return { request: { params: request.params, query, headers: request.headers, body: value } };
}

function readBody(
  route: Route,
  request: FastifyRequest,
): { type: string; value: unknown } | { failure: Failure<ErrorCode> } {
  const bytes = request.body;
  const { type } = readContentType(request.headers['content-type']);
  if (route.consumes.length === 0) return { type, value: undefined };
  if (Buffer.isBuffer(bytes) && route.consumes.includes(type)) {
    const decoded = decodeBody(type, bytes);
    return 'failure' in decoded ? decoded : { type, value: decoded.value };
  }
  if (!route.bodyRequired) return { type, value: undefined };
  const details = { field: 'body', rule: 'required', allowed: [...route.consumes] };
  return { failure: failure('INVALID_REQUEST', `A body of type ${route.consumes.join(' or ')} is required.`, details) };
}
