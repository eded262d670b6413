/**
 * Sends traces over OTLP: docs/operate.md#traces. The service needs none of these packages, so install them beside this file:
 *
 *   npm i --no-save --prefix ops @opentelemetry/api@1.9.1 @opentelemetry/core@2.11.0 \
 *     @opentelemetry/exporter-trace-otlp-http@0.222.0 @opentelemetry/exporter-trace-otlp-proto@0.222.0 \
 *     @opentelemetry/instrumentation@0.222.0 @opentelemetry/instrumentation-http@0.222.0 \
 *     @opentelemetry/instrumentation-pg@0.74.0 @opentelemetry/instrumentation-pino@0.68.0 \
 *     @opentelemetry/instrumentation-undici@0.32.0 @opentelemetry/resources@2.11.0 @opentelemetry/sdk-trace-node@2.11.0
 *   node --import ./ops/otel.mjs dist/main.js
 */
import { subscribe } from 'node:diagnostics_channel';
import { register } from 'node:module';
import { setTimeout as sleep } from 'node:timers/promises';
import * as api from '@opentelemetry/api';
import { W3CTraceContextPropagator } from '@opentelemetry/core';
import { OTLPTraceExporter as JsonExporter } from '@opentelemetry/exporter-trace-otlp-http';
import { OTLPTraceExporter as ProtobufExporter } from '@opentelemetry/exporter-trace-otlp-proto';
import { registerInstrumentations } from '@opentelemetry/instrumentation';
import { HttpInstrumentation } from '@opentelemetry/instrumentation-http';
import { PgInstrumentation } from '@opentelemetry/instrumentation-pg';
import { PinoInstrumentation } from '@opentelemetry/instrumentation-pino';
import { UndiciInstrumentation } from '@opentelemetry/instrumentation-undici';
import * as resources from '@opentelemetry/resources';
import { BatchSpanProcessor, NodeTracerProvider } from '@opentelemetry/sdk-trace-node';

const TRACE_ID = 'speechgate.trace_id';
/** What may leave the process. Other attributes hold texts, signatures and keys in URLs, messages and headers (R40). */
const ALLOWED = new Set([
  TRACE_ID,
  'http.request.method',
  'http.response.status_code',
  'http.route',
  'error.type',
  'url.scheme',
  'server.address',
  'server.port',
  'db.system.name',
  'db.namespace',
  'db.query.text',
]);
const FLUSH_TIMEOUT_MS = 1_000;

/** Reduces spans to their allowed attributes, without the messages of errors, which may repeat the request. */
class RedactingProcessor extends BatchSpanProcessor {
  onEnd(span) {
    for (const name of Object.keys(span.attributes)) if (!ALLOWED.has(name)) delete span.attributes[name];
    span.events.length = 0;
    for (const link of span.links) delete link.attributes;
    delete span.status.message;
    super.onEnd(span);
  }
}

const { env } = process;
const exporter = env.OTEL_TRACES_EXPORTER || 'otlp';
const protocol = env.OTEL_EXPORTER_OTLP_TRACES_PROTOCOL || env.OTEL_EXPORTER_OTLP_PROTOCOL || 'http/protobuf';
if (!['otlp', 'none'].includes(exporter)) fail(`OTEL_TRACES_EXPORTER is ${exporter}. Set it to otlp or none.`);
if (!['http/protobuf', 'http/json'].includes(protocol)) {
  fail(`The OTLP protocol is ${protocol}. Set OTEL_EXPORTER_OTLP_PROTOCOL to http/protobuf or http/json.`);
}
if (env.OTEL_SDK_DISABLED?.toLowerCase() !== 'true' && exporter === 'otlp') start();

function fail(message) {
  console.error(`speechgate can't trace:\n${message}`);
  process.exit(78);
}

function start() {
  api.diag.setLogger(new api.DiagConsoleLogger(), api.DiagLogLevel.WARN);
  const { envDetector, hostDetector, serviceInstanceIdDetector } = resources;
  const own = { 'service.name': env.SERVICE_NAME || 'speechgate', 'process.pid': process.pid };
  const provider = new NodeTracerProvider({
    resource: resources
      .defaultResource()
      .merge(resources.resourceFromAttributes(own))
      .merge(resources.detectResources({ detectors: [hostDetector, serviceInstanceIdDetector, envDetector] })),
    spanProcessors: [new RedactingProcessor(protocol === 'http/json' ? new JsonExporter() : new ProtobufExporter())],
  });
  provider.register({ propagator: new W3CTraceContextPropagator() });
  register('@opentelemetry/instrumentation/hook.mjs', import.meta.url, {
    data: { include: ['pg', 'pg-pool', 'pino'] },
  });
  registerInstrumentations({
    instrumentations: [
      // Its span lasts until the last byte of the response, or until the caller leaves.
      new HttpInstrumentation({
        disableOutgoingRequestInstrumentation: true,
        ignoreIncomingRequestHook: ({ url }) => ['/livez', '/readyz', '/metrics'].includes(url),
      }),
      new PgInstrumentation({ requireParentSpan: true }),
      new UndiciInstrumentation({ requireParentforSpans: true }),
      new PinoInstrumentation({ disableLogSending: true }),
    ],
  });

  const inSpan = (name, options, context, run) =>
    api.trace.getTracer('speechgate').startActiveSpan(name, options, context, async (span) => {
      try {
        return await run();
      } catch (error) {
        span.setStatus({ code: api.SpanStatusCode.ERROR });
        throw error;
      } finally {
        span.end();
      }
    });

  // A job may run in another process, so its row keeps the trace of its request.
  subscribe('speechgate.job.queue', (job) => api.propagation.inject(api.context.active(), job));
  subscribe('speechgate.job.run', (job) => {
    const { run, traceId, traceparent } = job;
    if (traceparent === null) return;
    const parent = api.propagation.extract(api.ROOT_CONTEXT, { traceparent });
    job.run = () => inSpan('job', { attributes: { [TRACE_ID]: traceId } }, parent, run);
  });

  // The client's own span has only method and address, such as POST.
  subscribe('speechgate.outside.call', (call) => {
    const { name, run } = call;
    if (api.trace.getActiveSpan()) call.run = () => inSpan(name, {}, api.context.active(), run);
  });

  const nameSpan = ({ id, method, routeOptions }, _reply, done) => {
    const span = api.trace.getActiveSpan();
    span?.updateName(routeOptions.url ? `${method} ${routeOptions.url}` : method);
    span?.setAttributes({ [TRACE_ID]: id, 'http.route': routeOptions.url });
    done();
  };
  // Its public server closes first and its operators' listener last. A stop doesn't wait for a slow collector.
  const flush = () =>
    Promise.race([provider.forceFlush(), sleep(FLUSH_TIMEOUT_MS, undefined, { ref: false })]).catch(() => {});
  subscribe('fastify.initialization', ({ fastify }) => {
    fastify.addHook('onRequest', nameSpan);
    fastify.addHook('onClose', flush);
  });
}
