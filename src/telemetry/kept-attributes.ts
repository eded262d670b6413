import type { Attributes } from '@opentelemetry/api';
import type { ReadableSpan, SpanExporter } from '@opentelemetry/sdk-trace-node';

/** The span attribute with the `x-trace-id` of the answer. */
export const TRACE_ID = 'speechgate.trace_id';

/**
 * The attributes that leave the process. The instrumentations know more: whole addresses with their queries, which hold
 * texts, signatures and keys of nodes, messages of errors, headers. What a new release of them adds stays here too (R40).
 */
const KEPT: ReadonlySet<string> = new Set([
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

/** Hands spans on to another exporter, with the attributes that may leave and nothing else that somebody wrote. */
export class KeptAttributes implements SpanExporter {
  readonly #exporter: SpanExporter;

  constructor(exporter: SpanExporter) {
    this.#exporter = exporter;
  }

  export(spans: ReadableSpan[], done: Parameters<SpanExporter['export']>[1]): void {
    this.#exporter.export(spans.map(bared), done);
  }

  shutdown(): Promise<void> {
    return this.#exporter.shutdown();
  }

  async forceFlush(): Promise<void> {
    await this.#exporter.forceFlush?.();
  }
}

const bared = (span: ReadableSpan): ReadableSpan => ({
  name: span.name,
  kind: span.kind,
  spanContext: () => span.spanContext(),
  ...(span.parentSpanContext && { parentSpanContext: span.parentSpanContext }),
  startTime: span.startTime,
  endTime: span.endTime,
  status: { code: span.status.code },
  attributes: kept(span.attributes),
  links: span.links.map(({ context }) => ({ context })),
  // Exceptions, with messages that may repeat what was asked for.
  events: [],
  duration: span.duration,
  ended: span.ended,
  resource: span.resource,
  instrumentationScope: span.instrumentationScope,
  droppedAttributesCount: 0,
  droppedEventsCount: 0,
  droppedLinksCount: 0,
});

const kept = (attributes: Attributes): Attributes =>
  Object.fromEntries(Object.entries(attributes).filter(([name]) => KEPT.has(name)));
