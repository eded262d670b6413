import { getHeapStatistics } from 'node:v8';
import underPressure from '@fastify/under-pressure';
import fp from 'fastify-plugin';
import type { Route } from '../../contract/routes.ts';
import type { Metrics } from '../../observability/metrics.ts';
import { sendFailure } from '../reply.ts';
import { failure } from '../structured-error.ts';

/** Mean over a sample: one slow turn, as at a start, is no overload. */
const MAX_EVENT_LOOP_DELAY_MS = 3_000;
const SAMPLE_INTERVAL_MS = 10_000;
const MAX_HEAP_SHARE = 0.9;
const MOST_RETRY_SECONDS = 3;

const isSheddable = ({ responses }: Route): boolean => responses[503]?.errorCodes?.includes('TTS_UNAVAILABLE') ?? false;

/** Refuses speech while the event loop or the heap is overloaded. */
export const pressure = fp(async (app, { metrics }: { readonly metrics: Metrics }) => {
  await app.register(underPressure, {
    sampleInterval: SAMPLE_INTERVAL_MS,
    maxEventLoopDelay: MAX_EVENT_LOOP_DELAY_MS,
    maxHeapUsedBytes: getHeapStatistics().heap_size_limit * MAX_HEAP_SHARE,
    pressureHandler: (request, reply, type) => {
      const route = request.routeOptions.config?.contract;
      if (!route || !isSheddable(route) || reply.sent) return;
      metrics.shed(type === 'eventLoopDelay' ? 'event_loop' : 'memory');
      // Random, so that callers don't return at the same time.
      reply.header('retry-after', 1 + Math.floor(Math.random() * MOST_RETRY_SECONDS));
      sendFailure(route, OVERLOADED, reply);
    },
  });
});

const OVERLOADED = failure('TTS_UNAVAILABLE', 'The service is overloaded. Retry later. You were not charged.', {
  transient: true,
  reason: 'overloaded',
});
