import { NO_WHOLE_NUMBER, type Settings } from './setting.ts';

const ENDPOINT = { OTEL_EXPORTER_OTLP_ENDPOINT: 'http://127.0.0.1:4318' };
const NO_URL = ['127.0.0.1:4318', 'grpc://127.0.0.1:4317'];
const protobuf = { protocol: 'http/protobuf' };
const metrics = { ...protobuf, intervalMs: 60_000 };

/** OpenTelemetry's own variables, as far as the service reads them itself. */
export const TELEMETRY_SETTINGS: Settings = {
  OTEL_EXPORTER_OTLP_ENDPOINT: {
    read: (config) => config.telemetry,
    absent: undefined,
    accepted: { 'http://127.0.0.1:4318': { traces: protobuf, metrics } },
    refused: NO_URL,
  },
  OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: {
    read: (config) => config.telemetry,
    absent: undefined,
    accepted: { 'https://traces.internal/v1/traces': { traces: protobuf, metrics: undefined } },
    refused: NO_URL,
  },
  OTEL_EXPORTER_OTLP_METRICS_ENDPOINT: {
    read: (config) => config.telemetry,
    absent: undefined,
    accepted: { 'https://metrics.internal/v1/metrics': { traces: undefined, metrics } },
    refused: NO_URL,
  },
  OTEL_TRACES_EXPORTER: {
    read: (config) => config.telemetry,
    absent: undefined,
    accepted: { otlp: { traces: protobuf, metrics: undefined }, none: undefined },
    refused: ['zipkin', 'console', 'otlp,console'],
  },
  OTEL_METRICS_EXPORTER: {
    read: (config) => config.telemetry,
    absent: { traces: protobuf, metrics },
    beside: ENDPOINT,
    accepted: { otlp: { traces: protobuf, metrics }, none: { traces: protobuf, metrics: undefined } },
    refused: ['prometheus'],
  },
  OTEL_SDK_DISABLED: {
    read: (config) => config.telemetry,
    absent: { traces: protobuf, metrics },
    beside: ENDPOINT,
    accepted: { true: undefined, TRUE: undefined, false: { traces: protobuf, metrics } },
    refused: ['1', 'yes'],
  },
  OTEL_EXPORTER_OTLP_PROTOCOL: {
    read: (config) => config.telemetry?.traces,
    absent: protobuf,
    beside: ENDPOINT,
    accepted: { 'http/protobuf': protobuf, 'http/json': { protocol: 'http/json' } },
    refused: ['grpc'],
  },
  OTEL_EXPORTER_OTLP_TRACES_PROTOCOL: {
    read: (config) => config.telemetry?.traces,
    absent: protobuf,
    beside: ENDPOINT,
    accepted: { 'http/json': { protocol: 'http/json' } },
    refused: ['grpc'],
  },
  OTEL_EXPORTER_OTLP_METRICS_PROTOCOL: {
    read: (config) => config.telemetry?.metrics?.protocol,
    absent: 'http/protobuf',
    beside: ENDPOINT,
    accepted: { 'http/json': 'http/json' },
    refused: ['grpc'],
  },
  OTEL_METRIC_EXPORT_INTERVAL: {
    read: (config) => config.telemetry?.metrics?.intervalMs,
    absent: 60_000,
    beside: ENDPOINT,
    accepted: { '5000': 5000 },
    refused: ['99', ...NO_WHOLE_NUMBER],
  },
  OTEL_PROPAGATORS: {
    read: (config) => config.telemetry?.traces,
    absent: protobuf,
    beside: ENDPOINT,
    accepted: { 'tracecontext,baggage': protobuf },
    refused: ['b3', 'tracecontext,jaeger'],
  },
};
