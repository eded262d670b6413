/** The kinds of bucket that requests are counted in, as X-RateLimit-Scope names them (R48). */
export type Scope = 'account' | 'ip' | 'feedback' | 'top-up' | 'audio' | 'edge';

/** What became of one attempt to take a slot of a bucket. A refused attempt takes none. */
export interface Slot {
  readonly scope: Scope;
  readonly allowed: boolean;
  /** Requests that the bucket allows within its window. */
  readonly limit: number;
  readonly windowSeconds: number;
  readonly remaining: number;
  /** Whole seconds, rounded up, until a taken slot is given back; when refused, until a request can succeed. */
  readonly resetSeconds: number;
}

/** The slot of a request that is taken in one statement with the hold that pays for it, where it can be. */
export interface PendingSlot {
  /** Takes it by itself, unless it was taken before. False when it is refused. */
  take(): Promise<boolean>;
  /** Tells what the statement has found that took it. False when it is refused. */
  taken(slot: Slot): boolean;
}
