/**
 * What the parts ask of whatever traces requests, which is loaded only where a standard variable turns it on
 * (src/telemetry/). So nobody depends on it, and without it there is nothing to do.
 */
export interface Tracing {
  /** The place in the trace of what runs now, as W3C Trace Context writes it; undefined outside of a trace. */
  traceparent(): string | undefined;
  /** The function, to be run later in the present place of the trace. */
  bind<Run extends (...args: never[]) => unknown>(run: Run): Run;
  /** Runs the work in a span of its own that goes on from the traceparent, and ends it with the work. */
  goOn<T>(from: string, span: { readonly name: string; readonly traceId: string }, work: () => Promise<T>): Promise<T>;
  /** Remembers the present place, for work that several requests share. */
  place(): TracePlace;
  /** Runs the work once in the first place, and shows it in the traces of the others. */
  share<T>(places: readonly TracePlace[], work: () => Promise<T>): Promise<T>;
}

declare const place: unique symbol;
/** A place in a trace, whatever the tracing makes of it. */
export interface TracePlace {
  readonly [place]: true;
}

let current: Tracing | undefined;

/** Undefined while nothing is traced. */
export const tracing = (): Tracing | undefined => current;

/** Called once, before anything is served. */
export function traceWith(tracing: Tracing): void {
  current = tracing;
}
