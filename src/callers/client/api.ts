import createClient, { type Client } from 'openapi-fetch';
import type { JsonObject, paths } from '../../contract/types.ts';
import { TooLargeError } from './errors.ts';

/** A type of the contract as parsed from JSON: 64-bit integers are plain numbers. */
export type Wire<T> = T extends bigint
  ? number
  : T extends JsonObject
    ? T
    : T extends object
      ? { [Key in keyof T]: Wire<T[Key]> }
      : T;

export type Api = Client<Wire<paths>>;

export interface ApiResult<Data> {
  readonly response: Response;
  readonly data?: Data | undefined;
  readonly error?: unknown;
}

export const MAX_JSON_BYTES = 1_048_576;
const MAX_BODY_MS = 3_600_000;
/** A cached response could name a former payee. Node.js's types lack this option. */
const UNCACHED = { cache: 'no-store' } as RequestInit;

/** Keeps the caller's signal: `Request.signal` can be lost to garbage collection. */
class SignalledRequest extends Request {
  readonly callerSignal: AbortSignal | undefined;
  readonly maxAudioBytes?: number;

  constructor(input: string | URL | Request, init: RequestInit = {}) {
    super(input, init);
    this.callerSignal = init.signal ?? undefined;
  }
}

/**
 * Follows no redirects and sends no cookies. Limits JSON to `MAX_JSON_BYTES`, and audio to the call's `maxAudioBytes`.
 * @param baseUrl an origin
 */
export const openApi = (baseUrl: string, send: typeof globalThis.fetch = (...call) => fetch(...call)): Api =>
  createClient<Wire<paths>>({
    baseUrl,
    redirect: 'error',
    credentials: 'omit',
    Request: SignalledRequest,
    fetch: async (request) => {
      const { callerSignal, maxAudioBytes } = request as SignalledRequest;
      const response = await send(request, { ...UNCACHED, ...(callerSignal && { signal: callerSignal }) });
      const isAudio = response.ok && response.headers.get('content-type')?.startsWith('audio/');
      return boundedResponse(response, (isAudio && maxAudioBytes) || MAX_JSON_BYTES, callerSignal);
    },
  });

/** Enough for uncompressed stereo at 48 kHz, spoken at half the speed. */
export const maxAudioBytes = (characters: number): number => Math.min(2_097_152 + characters * 24_576, 268_435_456);

/** The body fails beyond the limit (after decompression), after an hour, or when the signal aborts. */
export function boundedResponse(response: Response, maxBytes: number, signal: AbortSignal | undefined): Response {
  const { body, status, statusText, headers } = response;
  if (body === null) return response;
  const deadline = performance.now() + MAX_BODY_MS;
  let remainingBytes = maxBytes;
  const limiter = new TransformStream<Uint8Array, Uint8Array>({
    transform(chunk, controller) {
      remainingBytes -= chunk.length;
      if (remainingBytes < 0)
        throw new TooLargeError(
          `The response exceeds ${maxBytes} bytes and was cut off. Ask the operator of the service.`,
        );
      if (performance.now() > deadline)
        throw new TooLargeError('The response took over an hour and was cut off. Ask the operator of the service.');
      controller.enqueue(chunk);
    },
  });
  return new Response(body.pipeThrough(limiter, { ...(signal && { signal }) }), { status, statusText, headers });
}
