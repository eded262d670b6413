/** Sends traces: node --import ./dist/observability/register.js dist/main.js. No module imports this file. */
import { register } from 'node:module';
import { FastifyOtelInstrumentation } from '@fastify/otel';
import { DiagConsoleLogger, DiagLogLevel, diag } from '@opentelemetry/api';
import { W3CTraceContextPropagator } from '@opentelemetry/core';
import { OTLPTraceExporter as JsonExporter } from '@opentelemetry/exporter-trace-otlp-http';
import { OTLPTraceExporter as ProtobufExporter } from '@opentelemetry/exporter-trace-otlp-proto';
import { registerInstrumentations } from '@opentelemetry/instrumentation';
import { PgInstrumentation } from '@opentelemetry/instrumentation-pg';
import { PinoInstrumentation } from '@opentelemetry/instrumentation-pino';
import { UndiciInstrumentation } from '@opentelemetry/instrumentation-undici';
import {
  defaultResource,
  detectResources,
  envDetector,
  hostDetector,
  resourceFromAttributes,
  serviceInstanceIdDetector,
} from '@opentelemetry/resources';
import { BatchSpanProcessor, NodeTracerProvider } from '@opentelemetry/sdk-trace-node';
import { redacting, TRACE_ID } from './redaction.ts';

const { env } = process;
const exporter = env.OTEL_TRACES_EXPORTER || 'otlp';
const protocol = env.OTEL_EXPORTER_OTLP_TRACES_PROTOCOL || env.OTEL_EXPORTER_OTLP_PROTOCOL || 'http/protobuf';
if (!['otlp', 'none'].includes(exporter)) fail(`OTEL_TRACES_EXPORTER is ${exporter}. Set it to otlp or none.`);
if (!['http/protobuf', 'http/json'].includes(protocol)) {
  fail(`The OTLP protocol is ${protocol}. Set OTEL_EXPORTER_OTLP_PROTOCOL to http/protobuf or http/json.`);
}
if (env.OTEL_SDK_DISABLED?.toLowerCase() !== 'true' && exporter === 'otlp') start();

function start(): void {
  diag.setLogger(new DiagConsoleLogger(), DiagLogLevel.WARN);
  const resource = defaultResource()
    .merge(resourceFromAttributes({ 'service.name': env.SERVICE_NAME || 'speechgate', 'process.pid': process.pid }))
    .merge(detectResources({ detectors: [hostDetector, serviceInstanceIdDetector, envDetector] }));
  const sender = redacting(protocol === 'http/json' ? new JsonExporter() : new ProtobufExporter());
  const provider = new NodeTracerProvider({ resource, spanProcessors: [new BatchSpanProcessor(sender)] });
  provider.register({ propagator: new W3CTraceContextPropagator() });
  register('@opentelemetry/instrumentation/hook.mjs', import.meta.url, {
    data: { include: ['pg', 'pg-pool', 'pino'] },
  });
  registerInstrumentations({
    instrumentations: [
      new FastifyOtelInstrumentation({
        registerOnInitialization: true,
        instrumentHooks: false,
        instrumentHandler: false,
        recordExceptions: false,
        ignorePaths: ({ url }) => ['/livez', '/readyz', '/metrics'].includes(url),
        requestHook: (span, { id, method, routeOptions }) => {
          span.updateName(routeOptions.url ? `${method} ${routeOptions.url}` : method);
          span.setAttribute(TRACE_ID, id);
        },
      }),
      new PgInstrumentation({ requireParentSpan: true }),
      new UndiciInstrumentation({ requireParentforSpans: true }),
      new PinoInstrumentation({ disableLogSending: true }),
    ],
  });
}

function fail(message: string): never {
  console.error(`speechgate can't trace:\n${message}`);
  process.exit(78);
}
