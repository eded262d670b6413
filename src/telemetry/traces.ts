import { W3CTraceContextPropagator } from '@opentelemetry/core';
import type { Resource } from '@opentelemetry/resources';
import { BatchSpanProcessor, NodeTracerProvider, type SpanExporter } from '@opentelemetry/sdk-trace-node';
import { traceWith } from '../observability/tracing.ts';
import type { OtlpConfig } from '../settings/telemetry-settings.ts';
import { instrument } from './instrumentations.ts';
import { KeptAttributes } from './kept-attributes.ts';
import { requestTracing } from './request-tracing.ts';

/** Traces requests from now on; the sampler and the batches are those of the standard variables. Returns how to stop. */
export async function startTraces(traces: OtlpConfig, resource: Resource): Promise<() => Promise<void>> {
  const provider = new NodeTracerProvider({
    resource,
    spanProcessors: [new BatchSpanProcessor(new KeptAttributes(await exporterOf(traces)))],
  });
  provider.register({ propagator: new W3CTraceContextPropagator() });
  instrument();
  traceWith(requestTracing(provider.getTracer('speechgate')));
  return () => provider.shutdown();
}

/** Endpoint, headers, timeout and the like it reads from the standard variables. */
async function exporterOf({ protocol }: OtlpConfig): Promise<SpanExporter> {
  const { OTLPTraceExporter } = await (protocol === 'http/json'
    ? import('@opentelemetry/exporter-trace-otlp-http')
    : import('@opentelemetry/exporter-trace-otlp-proto'));
  return new OTLPTraceExporter();
}
