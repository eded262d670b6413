import { register } from 'node:module';
import { FastifyOtelInstrumentation } from '@fastify/otel';
import { registerInstrumentations } from '@opentelemetry/instrumentation';
import { PgInstrumentation } from '@opentelemetry/instrumentation-pg';
import { PinoInstrumentation } from '@opentelemetry/instrumentation-pino';
import { UndiciInstrumentation } from '@opentelemetry/instrumentation-undici';
import { TRACE_ID } from './kept-attributes.ts';

/** What is wrapped when it is imported; nothing else is touched. */
const WRAPPED = ['pg', 'pg-pool', 'pino'];

/**
 * Has requests, statements and calls to others make spans, and log lines name them. What is imported before this is not
 * followed. Work that belongs to no request, such as heartbeats, makes none.
 */
export function instrument(): void {
  register('@opentelemetry/instrumentation/hook.mjs', import.meta.url, { data: { include: WRAPPED } });
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
