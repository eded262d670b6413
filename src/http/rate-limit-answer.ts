import type { Slot } from '../limits/slot.ts';
import { failure } from './structured-error.ts';

/** The 429 of a refused slot. */
export type RateLimited = ReturnType<typeof rateLimited>;

/** The headers that tell a caller what is left of its bucket (R39). */
export function rateLimitHeaders(slot: Slot): Record<string, string> {
  return {
    'x-ratelimit-limit': String(slot.limit),
    'x-ratelimit-policy': `${slot.limit};w=${slot.windowSeconds}`,
    'x-ratelimit-remaining': String(slot.remaining),
    'x-ratelimit-reset': String(slot.resetSeconds),
    'x-ratelimit-scope': slot.scope,
  };
}

/** The 429 of a refused slot. */
export function rateLimited({ scope, limit, windowSeconds, resetSeconds }: Slot) {
  const details = { scope, limit, windowSeconds, retryAfterSeconds: resetSeconds };
  const message = `More than ${limit} requests within ${windowSeconds} seconds. Nothing was charged; wait as Retry-After says.`;
  return { ...failure('RATE_LIMITED', message, details), headers: { 'retry-after': resetSeconds } };
}
