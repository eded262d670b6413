import { channel } from 'node:diagnostics_channel';

/** ops/otel.mjs subscribes to both, so that a job belongs to the trace of its request. */
const queueChannel = channel('speechgate.job.queue');
const runChannel = channel('speechgate.job.run');

/** The active trace as a W3C traceparent; null without one. */
export function traceparent(): string | null {
  const job: { traceparent: string | null } = { traceparent: null };
  queueChannel.publish(job);
  return job.traceparent;
}

/** Runs a job in the trace of the request that queued it. */
export function continueTrace<T>(
  job: { readonly traceparent: string | null; readonly traceId: string },
  run: () => Promise<T>,
): Promise<T> {
  const { traceparent, traceId } = job;
  const message = { traceparent, traceId, run };
  runChannel.publish(message);
  return message.run();
}
