import type { Refused } from './refusal.ts';

/** Beyond this many the oldest is forgotten: some megabytes. */
const MAX_REQUESTS = 10_000;

export type ReplayRefused = Refused<'PREPAID_NONCE_REPLAYED'>;

/**
 * Signed requests that were answered with 409 because their nonces are spent, with that answer: the same request needs
 * neither its signature checked again nor the database, as long as its answer stays the same.
 */
export class RefusedReplays {
  /** By the digests of the requests, the oldest first; `until` is milliseconds of the monotonic clock. */
  readonly #known = new Map<string, { readonly refusal: ReplayRefused; readonly until: number }>();
  readonly #max: number;

  constructor(max = MAX_REQUESTS) {
    this.#max = max;
  }

  /** @param durationMs for how many milliseconds of the process's monotonic clock it is remembered (R34) */
  add(digest: Buffer, refusal: ReplayRefused, durationMs: number): void {
    const key = digest.toString('base64');
    this.#known.delete(key);
    this.#known.set(key, { refusal, until: performance.now() + durationMs });
    const [oldest] = this.#known.keys();
    if (this.#known.size > this.#max && oldest !== undefined) this.#known.delete(oldest);
  }

  /** What exactly this request was answered with. */
  get(digest: Buffer): ReplayRefused | undefined {
    const key = digest.toString('base64');
    const known = this.#known.get(key);
    if (!known || known.until > performance.now()) return known?.refusal;
    this.#known.delete(key);
    return undefined;
  }
}
