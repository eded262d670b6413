import createClient, { type Client } from 'openapi-fetch';
import type { JsonObject, paths } from '../contract/types.ts';
import { boundedResponse, MOST_JSON_BYTES } from './bounded-response.ts';

/** A type of the contract as JSON has it: whole numbers of 64 bits are plain numbers there. */
export type Wire<T> = T extends bigint
  ? number
  : T extends JsonObject
    ? T
    : T extends object
      ? { [Key in keyof T]: Wire<T[Key]> }
      : T;

/** The service's operations, as the contract declares them. */
export type Api = Client<Wire<paths>>;

/** What the browser's cache holds is no answer: a payee may have been rotated since. Node's types don't know it. */
const UNCACHED = { cache: 'no-store' } as RequestInit;

/** Keeps the signal that it was made with: its own one is lost when a garbage collection takes it. */
class SignalledRequest extends Request {
  readonly callerSignal: AbortSignal | undefined;
  /** The most that successful audio may have, where the call names it. */
  readonly mostAudioBytes?: number;

  constructor(input: string | URL | Request, init: RequestInit = {}) {
    super(input, init);
    this.callerSignal = init.signal ?? undefined;
  }
}

/**
 * Never follows a redirect, and neither sends nor keeps anything of the browser's. Every answer has a bound: that of JSON, or
 * the `mostAudioBytes` that a call for audio gives. @param baseUrl an origin
 */
export const openApi = (baseUrl: string, send: typeof globalThis.fetch = (...call) => fetch(...call)): Api =>
  createClient<Wire<paths>>({
    baseUrl,
    redirect: 'error',
    credentials: 'omit',
    Request: SignalledRequest,
    fetch: async (request) => {
      const { callerSignal, mostAudioBytes } = request as SignalledRequest;
      const response = await send(request, { ...UNCACHED, ...(callerSignal && { signal: callerSignal }) });
      const isAudio = response.ok && response.headers.get('content-type')?.startsWith('audio/');
      const mostBytes = (isAudio && mostAudioBytes) || MOST_JSON_BYTES;
      return boundedResponse(response, mostBytes, callerSignal);
    },
  });

/** What openapi-fetch tells of an answer. */
export interface Told<Data> {
  readonly response: Response;
  readonly data?: Data | undefined;
  readonly error?: unknown;
}
