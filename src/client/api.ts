import createClient, { type Client } from 'openapi-fetch';
import type { JsonObject, paths } from '../contract/types.ts';

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

/** Never follows a redirect, and neither sends nor keeps anything of the browser's. @param baseUrl an origin */
export const openApi = (baseUrl: string, send: typeof globalThis.fetch = (...call) => fetch(...call)): Api =>
  createClient<Wire<paths>>({
    baseUrl,
    redirect: 'error',
    credentials: 'omit',
    fetch: (request) => send(request, UNCACHED),
  });

/** What openapi-fetch tells of an answer. */
export interface Told<Data> {
  readonly response: Response;
  readonly data?: Data | undefined;
  readonly error?: unknown;
}
