import type { Resource } from '@opentelemetry/resources';
import { MeterProvider, PeriodicExportingMetricReader, type PushMetricExporter } from '@opentelemetry/sdk-metrics';
import type { MetricValues } from '../observability/metrics.ts';
import type { OtlpConfig, TelemetryConfig } from '../settings/telemetry-settings.ts';
import { RegistryProducer } from './registry-producer.ts';

const EXPORT_TIMEOUT_MS = 30_000;

interface SendingMetrics {
  /** From now on there is something to send. */
  watch(read: () => Promise<MetricValues>): void;
  stop(): Promise<void>;
}

/** Sends what `/metrics` shows every interval. */
export async function startMetrics(
  { intervalMs, protocol }: NonNullable<TelemetryConfig['metrics']>,
  resource: Resource,
): Promise<SendingMetrics> {
  const producer = new RegistryProducer();
  const reader = new PeriodicExportingMetricReader({
    exporter: await exporterOf({ protocol }),
    exportIntervalMillis: intervalMs,
    exportTimeoutMillis: Math.min(intervalMs, EXPORT_TIMEOUT_MS),
    metricProducers: [producer],
  });
  const provider = new MeterProvider({ resource, readers: [reader] });
  return { watch: (read) => producer.watch(read), stop: () => provider.shutdown() };
}

/** Endpoint, headers, timeout and the like it reads from the standard variables. */
async function exporterOf({ protocol }: OtlpConfig): Promise<PushMetricExporter> {
  const { OTLPMetricExporter } = await (protocol === 'http/json'
    ? import('@opentelemetry/exporter-metrics-otlp-http')
    : import('@opentelemetry/exporter-metrics-otlp-proto'));
  return new OTLPMetricExporter();
}
