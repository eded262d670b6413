import { randomUUID } from 'node:crypto';
import { createServer as createHttpServer } from 'node:http';
import accepts from '@fastify/accepts';
import Fastify, {
  type FastifyBaseLogger,
  type FastifyInstance,
  type FastifyReply,
  type FastifyRequest,
  LogController,
} from 'fastify';
import type { CredentialProofs, OperationResult, Operations } from '../contract/operations.ts';
import { type Route, routes } from '../contract/routes.ts';
import type { OpenApiDocument, PaymentOutcome } from '../contract/types.ts';
import type { RunningWork } from '../lib/running-work.ts';
import { AttemptLimit } from '../limits/attempt-limit.ts';
import type { Metrics } from '../observability/metrics.ts';
import { Admission, type AdmissionParts, type Windows } from './admission.ts';
import { isBare, type StandIn } from './bare-request.ts';
import { answerClientError, answerConnect, answerExpectations, mayBegin } from './client-errors.ts';
import { ConnectionGuard } from './connection-guard.ts';
import { contractDocument } from './contract-document.ts';
import { EdgeLimiter } from './edge-limiter.ts';
import { handleError } from './error-handler.ts';
import { hasTooManyHeaders, MAX_HEADERS, refuseHeaders } from './header-count.ts';
import { EDGE_HEADERS } from './headers.ts';
import { createNotFoundHandler } from './not-found.ts';
import type { OperationContext } from './operation-context.ts';
import { isSheddable, type Overload } from './overload.ts';
import { overloaded } from './overload-answer.ts';
import type { RateLimited } from './rate-limit-answer.ts';
import { readRequest } from './read-request.ts';
import { sendFailure, sendResult } from './reply.ts';
import { RequestContext } from './request-context.ts';
import { hasEmptyParameter, refuseHead } from './request-head.ts';
import { RequestRecord, refusalRecorder } from './request-record.ts';
import { failure } from './structured-error.ts';

declare module 'fastify' {
  interface FastifyContextConfig {
    contract?: Route;
  }
  interface FastifyRequest {
    admission: Admission;
    record: RequestRecord;
    payment: PaymentOutcome | undefined;
  }
}

/** The largest request line with headers: 1500 CJK characters in a query, and a payment beside them (R5). */
const MAX_HEADER_BYTES = 65_536;
/** The longest body in bytes, where the contract's `x-body-limit` says nothing else (R4). */
const DEFAULT_BODY_LIMIT = 65_536;
const HEADERS_TIMEOUT_MS = 20_000;
const REQUEST_TIMEOUT_MS = 30_000;
const KEEP_ALIVE_TIMEOUT_MS = 75_000;
const BROKEN =
  'What follows this request on its connection is not HTTP. Is content-length right? Nothing was done or charged.';

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
  /** While it stops: how long a connection that waits for nothing is kept for a request that may be on its way. */
  readonly stopIdleMs: number;
  /** Aborted when the process is to stop: from then on answers close their connections. */
  readonly leaving: AbortSignal;
  readonly windows: Windows;
  readonly proofs: CredentialProofs<OperationContext>;
  /** What a request that says nothing at all is taken for, by operationId; where there is nothing it is refused. */
  readonly standIns: Readonly<Record<string, StandIn>>;
  /** Every operation that runs is added to it. */
  readonly work: RunningWork;
  readonly overload: Overload;
  readonly metrics: Metrics;
}

type Operation = (request: unknown, context: OperationContext) => Promise<OperationResult>;
type CredentialProof = (request: unknown, context: OperationContext) => Promise<boolean>;

/**
 * The HTTP edge: serves each operation of the contract, and refuses everything else with a declared answer. The
 * operations are made when the contract has been read.
 */
export async function createServer(
  operationsOf: (contract: OpenApiDocument) => Operations<OperationContext>,
  options: ServerOptions,
): Promise<FastifyInstance> {
  const guard = new ConnectionGuard({ ...options, stallMs: options.clientStallMs });
  const { overload } = options;
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
        overload.before(onRequest),
      );
      server.maxHeadersCount = MAX_HEADERS + 1;
      answerExpectations(server, recordRefusal);
      answerConnect(server, recordRefusal);
      guard.watch(server, (error, socket) => answerClientError(error, socket, recordRefusal));
      return server;
    },
    return503OnClosing: false,
    // `guard` hands on what is an error.
    clientErrorHandler: () => {},
    frameworkErrors: (error, request, reply) => {
      request.record = new RequestRecord(request, reply, options.metrics);
      reply.headers({ ...EDGE_HEADERS, 'x-trace-id': request.id });
      if (hasTooManyHeaders(request)) return refuseHeaders(reply);
      const answer = (admitted: Admission | RateLimited) => {
        if (admitted instanceof Admission) handleError(error, request, reply);
        else sendFailure(undefined, admitted, reply);
      };
      Admission.enter(parts, request, reply).then(answer, (thrown) => handleError(thrown, request, reply));
    },
  });
  await app.register(accepts);
  const { metrics, windows } = options;
  const parts: AdmissionParts = {
    limiter: await EdgeLimiter.on(app, options.edgeRateLimitMax),
    windows,
    failures: new AttemptLimit(windows.requests),
    metrics,
  };
  app.setErrorHandler(handleError);
  app.setNotFoundHandler(createNotFoundHandler(routes));
  app.removeAllContentTypeParsers();
  app.addContentTypeParser('*', { parseAs: 'buffer' }, (_request, body, done) => done(null, body));

  const operations = operationsOf(await contractDocument(options.baseUrl));
  addHooks(app, parts, overload, options);
  guard.start();
  overload.start((address) => parts.limiter.lastShown(address) === 'failed');
  options.leaving.addEventListener('abort', () => guard.leave());
  app.addHook('preClose', async () => guard.stop());
  app.addHook('onClose', async () => {
    guard.close();
    overload.close();
  });
  for (const route of routes) {
    const group = operations[route.tag as keyof Operations<OperationContext>] as unknown as Record<string, Operation>;
    const operation = group[route.operationId]?.bind(group) as Operation;
    const isCounted = isSheddable(route);
    app.route({
      method: route.method,
      url: route.path,
      config: { contract: route },
      exposeHeadRoute: route.method === 'GET' && !route.noHead,
      ...(route.bodyLimit && { bodyLimit: route.bodyLimit }),
      handler: (request, reply) => {
        const served = request.record.follow(serve({ route, operation, overload }, request, reply, options));
        return options.work.add(isCounted ? overload.follow(request.raw, served) : served);
      },
    });
  }
  return app;
}

function addHooks(app: FastifyInstance, parts: AdmissionParts, overload: Overload, options: ServerOptions): void {
  let warned = options.trustProxy.length > 0;
  app.decorateRequest('admission');
  app.decorateRequest('record');
  app.decorateRequest('payment', undefined);
  app.addHook('onRequest', async (request, reply) => {
    request.record = new RequestRecord(request, reply, options.metrics);
    reply.headers(EDGE_HEADERS).header('x-trace-id', request.id);
    if (hasTooManyHeaders(request)) return refuseHeaders(reply);
    // Node's parser drops what came in one packet with a request for an upgrade.
    if (request.headers.upgrade !== undefined) reply.header('connection', 'close');
    if (request.headers['x-forwarded-for'] !== undefined) {
      options.metrics.requestForwarded((request.ips?.length ?? 0) > 1 ? 'trusted' : 'untrusted');
      if (!warned) {
        warned = true;
        request.log.warn(
          'X-Forwarded-For arrived, but TRUST_PROXY is unset: every client has the address of the proxy',
        );
      }
    }
    const route = request.routeOptions.config?.contract;
    const admitted = await Admission.enter(parts, request, reply);
    if (!(admitted instanceof Admission)) return sendFailure(route, admitted, reply);
    request.admission = admitted;
    if (route && overload.refusesGuess(route, request.raw, admitted)) return sendFailure(route, overloaded(), reply);
    const refusal = refuseHead(request, route);
    if (refusal) return sendFailure(route, admitted.refuse() ?? refusal, reply);
    if (route && hasEmptyParameter(request)) return reply.callNotFound();
  });
}

interface Served {
  readonly route: Route;
  readonly operation: Operation;
  readonly overload: Overload;
}

async function serve(
  { route, operation, overload }: Served,
  request: FastifyRequest,
  reply: FastifyReply,
  { proofs, standIns }: ServerOptions,
) {
  const { admission } = request;
  if (!mayBegin(request.raw, reply.raw)) {
    reply.header('connection', 'close');
    return sendFailure(route, failure('INVALID_REQUEST', BROKEN, { field: 'body', rule: 'framing' }), reply);
  }
  const standIn = standIns[route.operationId];
  const bare = standIn && isBare(request, standIn) ? standIn : undefined;
  const read = bare ? standFor(request, bare) : readRequest(route, request);
  if (read.outcome === 'unreadable') return sendFailure(route, admission.refuse() ?? read.failure, reply);
  const proof = (proofs as unknown as Record<string, CredentialProof>)[route.operationId];
  const context = new RequestContext(request, reply, {
    isBare: bare !== undefined,
    isOverloaded: overload.isLookup(request.raw),
  });
  const refusal = await admission.prove(() => proof?.(read.request, context));
  if (refusal) return sendFailure(route, refusal, reply);
  return sendResult(route, await operation(read.request, context), reply);
}

const standFor = ({ params, headers }: FastifyRequest, { query, body }: StandIn) => ({
  outcome: 'read' as const,
  request: { params, query, headers, body },
});
