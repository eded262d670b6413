import {
  type Context,
  context,
  propagation,
  ROOT_CONTEXT,
  type Span,
  SpanStatusCode,
  type Tracer,
  trace,
} from '@opentelemetry/api';
import type { TracePlace, Tracing } from '../observability/tracing.ts';
import { TRACE_ID } from './kept-attributes.ts';

/** What several requests wait for together. */
const SHARED = 'shared statement';

/** Tracing by OpenTelemetry's context, which the instrumentations use too. */
export const requestTracing = (tracer: Tracer): Tracing => ({
  traceparent() {
    const carrier: { traceparent?: string } = {};
    propagation.inject(context.active(), carrier);
    return carrier.traceparent;
  },
  bind: (run) => context.bind(context.active(), run),
  goOn(traceparent, { name, traceId }, work) {
    const from = propagation.extract(ROOT_CONTEXT, { traceparent });
    const span = tracer.startSpan(name, { attributes: { [TRACE_ID]: traceId } }, from);
    return context.with(trace.setSpan(from, span), () => ending([span], work));
  },
  place: () => context.active() as unknown as TracePlace,
  share(places, work) {
    const [first = ROOT_CONTEXT, ...others] = places as unknown as readonly Context[];
    const traced = others.filter((other) => trace.getSpan(other) !== undefined);
    if (traced.length === 0) return context.with(first, work);
    const span = tracer.startSpan(
      SHARED,
      { links: traced.map((other) => linkTo(trace.getSpan(other) as Span)) },
      first,
    );
    const waiting = traced.map((other) => tracer.startSpan(SHARED, { links: [linkTo(span)] }, other));
    return context.with(trace.setSpan(first, span), () => ending([span, ...waiting], work));
  },
});

const linkTo = (span: Span) => ({ context: span.spanContext() });

async function ending<T>(spans: readonly Span[], work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    for (const span of spans) span.setStatus({ code: SpanStatusCode.ERROR });
    throw error;
  } finally {
    for (const span of spans) span.end();
  }
}
