import type { SettingsReader } from './settings-reader.ts';

/** How a signal is sent: OTLP over HTTP. The exporter reads the endpoint, headers and timeouts from the environment itself. */
export interface OtlpConfig {
  readonly protocol: 'http/protobuf' | 'http/json';
}

/** What is sent to OpenTelemetry's collectors; each signal is undefined where it is off. */
export interface TelemetryConfig {
  readonly traces: OtlpConfig | undefined;
  readonly metrics: (OtlpConfig & { readonly intervalMs: number }) | undefined;
}

const DEFAULT_INTERVAL_MS = 60_000;
const PROTOCOLS = ['http/protobuf', 'http/json'] as const;
const PROPAGATORS = ['tracecontext', 'baggage', 'none'];

/**
 * Reads OpenTelemetry's standard variables: undefined unless one of them turns a signal on, by naming its exporter or
 * its endpoint. Those that choose how (sampler, batches, headers, resource) the packages read themselves.
 */
export function readTelemetry(reader: SettingsReader): TelemetryConfig | undefined {
  const shared = {
    isNamed: readEndpoint(reader, 'OTEL_EXPORTER_OTLP_ENDPOINT'),
    protocol: readProtocol(reader, 'OTEL_EXPORTER_OTLP_PROTOCOL') ?? 'http/protobuf',
  };
  const traces = readSignal(reader, 'TRACES', shared);
  const metrics = readSignal(reader, 'METRICS', shared);
  const intervalMs = reader.integer('OTEL_METRIC_EXPORT_INTERVAL', 100, 86_400_000) ?? DEFAULT_INTERVAL_MS;
  if (!reader.list('OTEL_PROPAGATORS').every((name) => PROPAGATORS.includes(name))) {
    reader.fault('OTEL_PROPAGATORS', 'names one that is not built in', 'Unset it: traceparent is read and sent.');
  }
  if (readIsDisabled(reader) || !(traces || metrics)) return undefined;
  return { traces, metrics: metrics && { ...metrics, intervalMs } };
}

function readIsDisabled(reader: SettingsReader): boolean {
  const value = reader.text('OTEL_SDK_DISABLED')?.toLowerCase() ?? 'false';
  if (value !== 'true' && value !== 'false') {
    reader.fault(
      'OTEL_SDK_DISABLED',
      'is neither true nor false',
      'Set it to true to turn telemetry off, or unset it.',
    );
  }
  return value === 'true';
}

/** @param shared what is said for both signals */
function readSignal(
  reader: SettingsReader,
  signal: 'TRACES' | 'METRICS',
  shared: OtlpConfig & { readonly isNamed: boolean },
): OtlpConfig | undefined {
  const name = `OTEL_${signal}_EXPORTER`;
  const exporter = reader.text(name);
  const isNamed = readEndpoint(reader, `OTEL_EXPORTER_OTLP_${signal}_ENDPOINT`) || shared.isNamed;
  const protocol = readProtocol(reader, `OTEL_EXPORTER_OTLP_${signal}_PROTOCOL`) ?? shared.protocol;
  if (exporter !== undefined && exporter !== 'otlp' && exporter !== 'none') {
    return reader.fault(name, 'is an exporter that is not built in', 'Set it to otlp, or to none.');
  }
  return exporter === 'otlp' || (exporter === undefined && isNamed) ? { protocol } : undefined;
}

const readEndpoint = (reader: SettingsReader, name: string): boolean =>
  reader.httpUrl(name, reader.text(name), 'http://localhost:4318') !== undefined;

function readProtocol(reader: SettingsReader, name: string): OtlpConfig['protocol'] | undefined {
  const value = reader.text(name);
  const protocol = PROTOCOLS.find((known) => known === value);
  if (value === undefined || protocol) return protocol;
  return reader.fault(name, 'is a protocol that is not built in', `Set it to ${PROTOCOLS.join(' or ')}.`);
}
