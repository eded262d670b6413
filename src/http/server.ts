import { randomUUID } from 'node:crypto';
import { getHeapStatistics } from 'node:v8';
import accepts from '@fastify/accepts';
import { compile } from '@fastify/proxy-addr';
import underPressure, { type FastifyUnderPressureOptions } from '@fastify/under-pressure';
import Fastify, {
  type FastifyBaseLogger,
  type FastifyInstance,
  type FastifyReply,
  type FastifyRequest,
  LogController,
} from 'fastify';
import { isSocketPath } from '../config/edge-settings.ts';
import { type Route, routes } from '../contract/routes.ts';
import type { PaymentOutcome } from '../contract/types.ts';
import type { RunningWork } from '../lib/running-work.ts';
import type { Metrics } from '../observability/metrics.ts';
import { addressKey, withoutPort } from '../payments/limits/address-key.ts';
import { AttemptLimit } from '../payments/limits/rolling-window.ts';
import { readEdgeHeaders } from './edge-headers.ts';
import { bodies } from './plugins/bodies.ts';
import {
  answerClientError,
  type ClientErrorParts,
  connections,
  gracefulStop,
  OpenReplies,
} from './plugins/connections.ts';
import { EdgeLimiter } from './plugins/edge-limiter.ts';
import { createNotFoundHandler, errors, handleError } from './plugins/errors.ts';
import { type RateLimitParts, RateLimits, rateLimits, type Windows } from './plugins/rate-limits.ts';
import { requestHead } from './plugins/request-head.ts';
import { RequestRecord } from './plugins/request-log.ts';
import { sendFailure } from './reply.ts';
import { failure, RequestRefused } from './structured-error.ts';

declare module 'fastify' {
  interface FastifyRequest {
    /** What limits count its caller by, of `addressKey`. */
    client: string;
    payment: PaymentOutcome | undefined;
  }
}

/** For request line and headers: a query of 1500 CJK characters and a payment must fit (R5). */
const MAX_HEADER_BYTES = 65_536;
/** Used where the contract sets no `x-body-limit` (R4). */
const DEFAULT_BODY_LIMIT = 65_536;
const HEADERS_TIMEOUT_MS = 20_000;
const REQUEST_TIMEOUT_MS = 30_000;
const KEEP_ALIVE_TIMEOUT_MS = 75_000;
/** Bounds pipelining: after this many responses the connection closes. */
const MAX_REQUESTS_PER_SOCKET = 100;
/** How long a client may stall beyond the longest synthesis. */
const STALLED_CLIENT_MS = 30_000;
/** Mean over a sample: one slow turn, as at a start, is no overload. */
const MAX_EVENT_LOOP_DELAY_MS = 3_000;
const SAMPLE_INTERVAL_MS = 10_000;
const MAX_HEAP_SHARE = 0.9;
const MOST_OVERLOAD_RETRY_SECONDS = 3;

export interface ServerOptions {
  readonly logger: FastifyBaseLogger;
  /** An address, or the path of a Unix socket, which only the proxy may open. */
  readonly host: string;
  /** Only these addresses may set X-Forwarded-For (R39). A wrong one lets callers choose their rate limit. */
  readonly trustProxy: readonly string[];
  readonly edgeRateLimitMax: number;
  readonly maxConnections: number;
  readonly longestSynthesisMs: number;
  /** Aborted when a stop begins: from then on responses close their connections. */
  readonly leaving: AbortSignal;
  readonly windows: Windows;
  readonly work: RunningWork;
  readonly metrics: Metrics;
}

/** The public server, ready for the routes of `operations`. */
export async function createServer(options: ServerOptions): Promise<FastifyInstance> {
  const { logger, metrics, windows, trustProxy, leaving, work } = options;
  const headers = await readEdgeHeaders();
  const isTrusted = compile([...trustProxy]);
  const trustsProxy = trustProxy.length > 0 || isSocketPath(options.host);
  const app = Fastify({
    loggerInstance: logger,
    logController: new LogController({ disableRequestLogging: true, requestIdLogLabel: 'traceId' }),
    genReqId: () => randomUUID(),
    requestIdHeader: false,
    // The peer on a Unix socket has no address.
    trustProxy:
      trustsProxy && ((address?: string, hop = 0) => address === undefined || isTrusted(withoutPort(address), hop)),
    bodyLimit: DEFAULT_BODY_LIMIT,
    routerOptions: { maxParamLength: MAX_HEADER_BYTES },
    http: { maxHeaderSize: MAX_HEADER_BYTES, requireHostHeader: false, headersTimeout: HEADERS_TIMEOUT_MS },
    requestTimeout: REQUEST_TIMEOUT_MS,
    keepAliveTimeout: KEEP_ALIVE_TIMEOUT_MS,
    connectionTimeout: options.longestSynthesisMs + STALLED_CLIENT_MS,
    maxRequestsPerSocket: MAX_REQUESTS_PER_SOCKET,
    forceCloseConnections: 'idle',
    // Requests that were on their way when the stop began are served.
    return503OnClosing: false,
    clientErrorHandler: (error, socket) => answerClientError(clientErrors, error, socket),
    frameworkErrors: (error, request, reply) => {
      begin(request, reply);
      RateLimits.enter(limits, request, reply).then(
        (entered) => handleError(entered instanceof RateLimits ? error : new RequestRefused(entered), request, reply),
        (thrown) => handleError(thrown, request, reply),
      );
    },
  });
  app.server.maxConnections = options.maxConnections;
  app.decorate('work', work);
  app.decorateRequest('client');
  app.decorateRequest('record');
  app.decorateRequest('payment', undefined);
  app.decorateRequest('hasBegun', false);
  app.decorateRequest('isLast', false);
  const replies = new OpenReplies(app);
  const clientErrors: ClientErrorParts = { openReplies: replies, headers: headers.plain, logger, metrics };
  const limits: RateLimitParts = {
    limiter: await EdgeLimiter.on(app, options.edgeRateLimitMax),
    windows,
    failures: new AttemptLimit(windows.requests),
    metrics,
  };

  app.addHook('onRequest', async (request, reply) => begin(request, reply));
  await app.register(accepts);
  await app.register(connections, { ...clientErrors, leaving, trustsProxy });
  await app.register(rateLimits, limits);
  await app.register(requestHead);
  await app.register(underPressure, pressureOptions(metrics));
  await app.register(bodies);
  await app.register(errors);
  await app.register(gracefulStop, { replies, leaving });
  app.setNotFoundHandler(createNotFoundHandler(routes, headers.preflight));
  return app;

  /** Gives every response its `x-trace-id` (R10) and the headers of all. */
  function begin(request: FastifyRequest, reply: FastifyReply): void {
    request.client = addressKey(request.ip ?? '');
    request.record = new RequestRecord(request, reply, metrics);
    replies.add(reply);
    reply.headers(headers.plain).header('x-trace-id', request.id);
  }
}

/** Refuses speech while the event loop or the heap is overloaded (R9). */
const pressureOptions = (metrics: Metrics): FastifyUnderPressureOptions => ({
  sampleInterval: SAMPLE_INTERVAL_MS,
  maxEventLoopDelay: MAX_EVENT_LOOP_DELAY_MS,
  maxHeapUsedBytes: getHeapStatistics().heap_size_limit * MAX_HEAP_SHARE,
  pressureHandler: (request, reply, type) => {
    const route = request.routeOptions.config?.contract;
    if (!route || !isSheddable(route) || reply.sent) return;
    metrics.shed(type === 'eventLoopDelay' ? 'event_loop' : 'memory');
    // Random, so that callers don't return at the same time.
    reply.header('retry-after', 1 + Math.floor(Math.random() * MOST_OVERLOAD_RETRY_SECONDS));
    sendFailure(route, OVERLOADED, reply);
  },
});

const isSheddable = ({ responses }: Route): boolean => responses[503]?.errorCodes?.includes('TTS_UNAVAILABLE') ?? false;

const OVERLOADED = failure('TTS_UNAVAILABLE', 'The service is overloaded. Retry later. This request was not charged.', {
  transient: true,
  reason: 'overloaded',
});
