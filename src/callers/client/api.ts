import type { Client } from 'openapi-fetch';
import type { JsonObject, paths } from '../../contract/types.ts';
import { type ServiceError, SpeechgateError, TooLargeError, UnreachableError, UntrustedError } from './errors.ts';
import { faultOf, isTransient, serviceError } from './service-error.ts';
import { delayMs, pause, withDeadline } from './waiting.ts';

/** A type of the contract as parsed from JSON: 64-bit integers are plain numbers. */
export type Wire<T> = T extends bigint
  ? number
  : T extends JsonObject
    ? T
    : T extends object
      ? { [Key in keyof T]: Wire<T[Key]> }
      : T;

export type Api = Pick<Client<Wire<paths>>, 'GET' | 'POST'>;

export interface ApiResult<Data> {
  readonly response: Response;
  readonly data?: Data | undefined;
  readonly error?: unknown;
}

export const MAX_JSON_BYTES = 1_048_576;
const MAX_BODY_MS = 3_600_000;
const READ_ATTEMPTS = 3;
const READ_DEADLINE_MS = 15_000;
const MAX_READ_DELAY_MS = 10_000;
/** A cached response could name a former payee. Node.js's types lack this option. */
const UNCACHED = { cache: 'no-store' } as RequestInit;

interface Call {
  readonly params?: { readonly path?: Record<string, string>; readonly query?: Record<string, string> };
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: unknown;
  readonly bodySerializer?: () => string;
  readonly parseAs?: 'stream';
  readonly maxAudioBytes?: number;
  readonly signal?: AbortSignal;
}

/**
 * Follows no redirects and sends no cookies. It has the form of openapi-fetch, whose own code would be half of a page that
 * pays by card.
 * @param baseUrl an origin
 * @param limit called with `MAX_JSON_BYTES`, or for audio with the call's `maxAudioBytes`
 */
export function openApi(
  baseUrl: string,
  limit: typeof boundedResponse,
  send: typeof globalThis.fetch = (...call) => fetch(...call),
): Api {
  const call = async (method: string, path: string, options: Call = {}): Promise<ApiResult<unknown>> => {
    const { params, body, bodySerializer = () => JSON.stringify(body), parseAs, maxAudioBytes, signal } = options;
    const target = path.replace(/\{(\w+)\}/g, (_, name: string) => encodeURIComponent(params?.path?.[name] ?? ''));
    const query = `${new URLSearchParams(params?.query)}`;
    const request = new Request(baseUrl + target + (query && `?${query}`), {
      method,
      redirect: 'error',
      credentials: 'omit',
      headers: { ...(body !== undefined && { 'content-type': 'application/json' }), ...options.headers },
      ...(body !== undefined && { body: bodySerializer() }),
      ...(signal && { signal }),
    });
    // Again, because `Request.signal` can be lost to garbage collection.
    const sent = await send(request, { ...UNCACHED, ...(signal && { signal }) });
    const isAudio = sent.ok && sent.headers.get('content-type')?.startsWith('audio/');
    const response = limit(sent, (isAudio && maxAudioBytes) || MAX_JSON_BYTES, signal);
    if (!response.ok) return { response, error: await response.text().then(JSON.parse).catch(unlessJson) };
    return { response, data: parseAs === 'stream' ? response.body : JSON.parse(await response.text()) };
  };
  const of = (method: string) => (path: string, options?: Call) => call(method, path, options);
  return { GET: of('GET'), POST: of('POST') } as unknown as Api;
}

/** A proxy's own error may be a page. */
function unlessJson(error: unknown): undefined {
  if (!(error instanceof SyntaxError)) throw error;
}

/** Enough for uncompressed stereo at 48 kHz, spoken at half the speed; of long texts, which are MP3, at 128 kbit/s. */
export const maxAudioBytes = (characters: number): number =>
  Math.min(2_097_152 + characters * 24_576, Math.max(268_435_456, characters * 2_400));

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
          `The response of the service exceeds ${maxBytes} bytes, so it was not read to its end. Ask the operator of the service.`,
        );
      if (performance.now() > deadline)
        throw new TooLargeError(
          'The response of the service took more than an hour, so it was not read to its end. Ask the operator of the service.',
        );
      controller.enqueue(chunk);
    },
  });
  return new Response(body.pipeThrough(limiter, { ...(signal && { signal }) }), { status, statusText, headers });
}

/** Of a read, which may follow a purchase. */
const WAS_FREE = ' This call was free.';

/** @throws UntrustedError, and as `readData` */
export async function readJson<Data>(
  signal: AbortSignal | undefined,
  shape: Shape,
  send: (signal: AbortSignal) => Promise<ApiResult<Data>>,
): Promise<Data> {
  return validated(await readData(signal, send), shape, WAS_FREE);
}

/** Retries while the service is unavailable or overloaded. @throws ServiceError, UnreachableError */
export async function readData<Data>(
  signal: AbortSignal | undefined,
  send: (signal: AbortSignal) => Promise<ApiResult<Data>>,
): Promise<Data> {
  for (let attempt = 1; ; attempt += 1) {
    const result = await sendOnce(signal, send);
    if (!(result instanceof Error)) return result.data;
    const canRetry = result instanceof UnreachableError || isTransient(result);
    const delay = delayMs(attempt, result instanceof UnreachableError ? null : result.retryAfterSeconds);
    if (!canRetry || attempt === READ_ATTEMPTS || delay > MAX_READ_DELAY_MS) throw result;
    await pause(delay, signal);
  }
}

async function sendOnce<Data>(
  signal: AbortSignal | undefined,
  send: (signal: AbortSignal) => Promise<ApiResult<Data>>,
): Promise<{ readonly data: Data } | ServiceError | UnreachableError> {
  try {
    const { data, error, response } = await withDeadline(READ_DEADLINE_MS, signal, send);
    return data === undefined ? serviceError(faultOf(response, error)) : { data };
  } catch (cause) {
    signal?.throwIfAborted();
    if (cause instanceof SpeechgateError) throw cause;
    return new UnreachableError(`The service is unavailable. Check its URL, then retry.${WAS_FREE}`, { cause });
  }
}

/** The members that the client uses. `amount` is a whole number of micro-USD, 0 or more. */
export type Shape =
  | 'string'
  | 'number'
  | 'boolean'
  | 'amount'
  | readonly [Shape]
  | { readonly [member: string]: Shape };

/** @param money what happened to it, where that is known */
export function validated<Value>(value: Value, shape: Shape, money = ''): Value {
  const fault = incompatibility(value, shape, '');
  if (fault === undefined) return value;
  throw new UntrustedError(
    'malformed',
    `The response of the service is invalid: ${fault}. Ask the operator of the service.${money}`,
  );
}

function incompatibility(value: unknown, shape: Shape, path: string): string | undefined {
  if (shape === 'amount')
    return Number.isSafeInteger(value) && Number(value) >= 0 ? undefined : `${path} is not an amount in micro-USD`;
  if (typeof shape === 'string') return typeof value === shape ? undefined : `${path} is not a ${shape}`;
  const isList = Array.isArray(shape);
  const isOfKind = typeof value === 'object' && value !== null && Array.isArray(value) === isList;
  if (!isOfKind) return `${path || 'its JSON body'} is not ${isList ? 'a list' : 'an object'}`;
  const members = isList ? Object.keys(value).map((index) => [index, shape[0]] as const) : Object.entries(shape);
  for (const [name, of] of members) {
    const fault = incompatibility((value as Record<string, unknown>)[name], of, path ? `${path}.${name}` : name);
    if (fault !== undefined) return fault;
  }
  return undefined;
}
