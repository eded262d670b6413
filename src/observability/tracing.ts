import { context, ProxyTracerProvider, propagation, ROOT_CONTEXT, SpanStatusCode, trace } from '@opentelemetry/api';

/** The active trace as a W3C traceparent; undefined without one. */
export function traceparent(): string | undefined {
  const carrier: { traceparent?: string } = {};
  propagation.inject(context.active(), carrier);
  return carrier.traceparent;
}

/** Runs the work in a new span that continues a trace, for example of the request that queued a job. */
export function continueTrace<T>(
  from: string | null,
  { name, traceId }: { readonly name: string; readonly traceId: string },
  work: () => Promise<T>,
): Promise<T> {
  if (from === null) return work();
  const parent = propagation.extract(ROOT_CONTEXT, { traceparent: from });
  const options = { attributes: { 'speechgate.trace_id': traceId } };
  return trace.getTracer('speechgate').startActiveSpan(name, options, parent, async (span) => {
    try {
      return await work();
    } catch (error) {
      span.setStatus({ code: SpanStatusCode.ERROR });
      throw error;
    } finally {
      span.end();
    }
  });
}

export async function flushTraces(): Promise<void> {
  const provider = trace.getTracerProvider();
  const delegate = provider instanceof ProxyTracerProvider ? provider.getDelegate() : provider;
  if ('forceFlush' in delegate && typeof delegate.forceFlush === 'function') await delegate.forceFlush();
}
