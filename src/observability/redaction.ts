import type { ReadableSpan, SpanExporter } from '@opentelemetry/sdk-trace-node';

export const TRACE_ID = 'speechgate.trace_id';

/** What may leave the process. Other attributes hold texts, signatures and keys in URLs, messages and headers (R40). */
const ALLOWED: ReadonlySet<string> = new Set([
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

/** Reduces spans to their allowed attributes, without events, messages and link attributes. */
export const redacting = (exporter: SpanExporter): SpanExporter => ({
  export: (spans, done) => exporter.export(spans.map(redacted), done),
  shutdown: () => exporter.shutdown(),
  forceFlush: async () => exporter.forceFlush?.(),
});

const redacted = (span: ReadableSpan): ReadableSpan => ({
  name: span.name,
  kind: span.kind,
  spanContext: () => span.spanContext(),
  ...(span.parentSpanContext && { parentSpanContext: span.parentSpanContext }),
  startTime: span.startTime,
  endTime: span.endTime,
  status: { code: span.status.code },
  attributes: Object.fromEntries(Object.entries(span.attributes).filter(([name]) => ALLOWED.has(name))),
  links: span.links.map(({ context }) => ({ context })),
  // Exception messages may repeat the request.
  events: [],
  duration: span.duration,
  ended: span.ended,
  resource: span.resource,
  instrumentationScope: span.instrumentationScope,
  droppedAttributesCount: 0,
  droppedEventsCount: 0,
  droppedLinksCount: 0,
});
