import { randomUUID } from 'node:crypto';
import type { ServerResponse } from 'node:http';
import { EDGE_HEADERS } from './headers.ts';
import { JSON_TYPE } from './media-types.ts';
import { failure } from './structured-error.ts';

/** What a caller is told who is refused because of overload, whatever he pays by. */
export const OVERLOADED = 'More is asked of this service than it can do in time.';

const MOST_RETRY_SECONDS = 3;

/** Whole seconds, not the same for all, so that they don't come back together. */
export const retryAfterSeconds = (): number => 1 + Math.floor(Math.random() * MOST_RETRY_SECONDS);

/** The 503 of a request of which nothing was begun. */
export const overloaded = () => ({ ...FAILURE, headers: { 'retry-after': retryAfterSeconds() } });

const FAILURE = failure('TTS_UNAVAILABLE', `${OVERLOADED} Nothing was held or charged; try again later.`, {
  transient: true,
  reason: 'overloaded',
});

/** As `overloaded`, written before anything has looked at the request. */
export function writeOverloaded(response: ServerResponse): void {
  const headers = ['x-trace-id', randomUUID(), 'retry-after', String(retryAfterSeconds()), ...FIXED];
  response.writeHead(FAILURE.status, headers).end(BODY);
}

/** A string: Node sends it in one piece with the headers. */
const BODY = JSON.stringify(FAILURE.body);
const FIXED = [
  ...Object.entries(EDGE_HEADERS).flat(),
  ...['content-type', JSON_TYPE],
  ...['content-length', String(Buffer.byteLength(BODY))],
];
