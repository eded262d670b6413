import { createHash } from 'node:crypto';
import { type PrepaidCredential, pathOf, type RawRequest, signedBytes } from '../x402/prepaid-credential.ts';

/** Beyond this many the oldest is forgotten: some megabytes. */
const MAX_REQUESTS = 10_000;

/**
 * Signed requests that were answered with 409 because their nonces are spent. A spent nonce stays spent for longer than
 * a signature lives, so that the same request needs neither its signature checked again nor the database.
 */
export class RefusedReplays {
  /** Digests of the signed requests by their signatures, the oldest first. */
  readonly #digests = new Map<string, string>();
  readonly #max: number;

  constructor(max = MAX_REQUESTS) {
    this.#max = max;
  }

  add(credential: PrepaidCredential, request: RawRequest): void {
    const key = keyOf(credential);
    this.#digests.delete(key);
    this.#digests.set(key, digest(credential, request));
    const [oldest] = this.#digests.keys();
    if (this.#digests.size > this.#max && oldest !== undefined) this.#digests.delete(oldest);
  }

  /** Whether it is exactly this request, with exactly this credential, and its signature has not expired since (R34). */
  has(credential: PrepaidCredential, request: RawRequest): boolean {
    const key = keyOf(credential);
    const known = this.#digests.get(key);
    if (known === undefined || known !== digest(credential, request)) return false;
    if (credential.expiry > BigInt(Math.floor(Date.now() / 1000))) return true;
    this.#digests.delete(key);
    return false;
  }
}

/** Whoever repeats a request may choose the letter case of its signature. */
const keyOf = ({ signature }: PrepaidCredential): string => signature.toLowerCase();

function digest(credential: PrepaidCredential, request: RawRequest): string {
  const { account, nonce, expiry, maxAmountMicroUsd } = credential;
  const { method, url } = request;
  return createHash('sha256')
    .update(JSON.stringify([account, nonce, String(expiry), String(maxAmountMicroUsd), method, pathOf(url)]))
    .update(signedBytes(request))
    .digest('base64');
}
