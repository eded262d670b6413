import type { FastifyBaseLogger } from 'fastify';
import type { Database } from '../db/database.ts';
import { isUnavailable } from '../db/errors.ts';
import { persistently } from '../db/patience.ts';
import { captureHold, type Hold, renewHold, voidHold } from '../ledger/hold.ts';
import type { Flow, Metrics } from '../metrics.ts';
import { keepLease } from './kept-lease.ts';

/** How long a capture is repeated while the database is away; the lease of a hold is longer. */
const CAPTURE_PATIENCE_MS = 15_000;
/** How long a hold's lease outlasts the synthesis: long enough for the capture and its last, slow statement. */
const LEASE_RESERVE_SECONDS = 30;

/** How long a hold's lease must be, so that it outlasts a synthesis of at most so long and its capture. */
export const leaseSeconds = (synthesisTimeoutMs: number): number => synthesisTimeoutMs / 1000 + LEASE_RESERVE_SECONDS;

/** Ends the holds of one flow's balances: exactly one of capture and void. */
export class BalanceHolds {
  readonly #db: Database;
  readonly #flow: Flow;
  readonly #log: FastifyBaseLogger;
  readonly #metrics: Metrics;

  constructor(db: Database, flow: Flow, log: FastifyBaseLogger, metrics: Metrics) {
    this.#db = db;
    this.#flow = flow;
    this.#log = log;
    this.#metrics = metrics;
  }

  placed(hold: Pick<Hold, 'amountMicroUsd'>): void {
    this.#metrics.holdMoved(this.#flow, 'placed', hold.amountMicroUsd);
  }

  /**
   * Keeps a hold's lease until the returned function is called.
   * @param askedAt when it was placed, by the monotonic clock, or earlier
   * @param lost when the lease could not be kept
   */
  keep(hold: Hold, lease: { readonly askedAt: number; readonly seconds: number }, lost: () => void): () => void {
    const { askedAt, seconds } = lease;
    const renew = () => renewHold(this.#db, hold, seconds);
    return keepLease({ askedAt, durationMs: seconds * 1000, renew }, () => {
      this.#log.warn('the lease of a hold was lost while its speech was heard');
      lost();
    });
  }

  /**
   * A capture whose answer was lost is repeated: it finds its own hold posted. False when the hold is lost. When this
   * throws, the hold is void, unless the database was away: then its end is not known.
   */
  async capture(hold: Hold): Promise<boolean> {
    const captured = await persistently(CAPTURE_PATIENCE_MS, () => captureHold(this.#db, hold)).catch(async (error) => {
      if (!isUnavailable(error)) await this.void(hold);
      throw error;
    });
    if (captured) this.#metrics.holdMoved(this.#flow, 'captured', hold.amountMicroUsd);
    return captured;
  }

  /**
   * Tells the balance after it; undefined when the hold had ended before, or the database is away: the reconciler voids
   * it then, once its lease has passed.
   */
  async void(hold: Hold): Promise<bigint | undefined> {
    try {
      const balance = await voidHold(this.#db, hold);
      if (balance !== undefined) this.#metrics.holdMoved(this.#flow, 'voided', hold.amountMicroUsd);
      return balance;
    } catch (error) {
      if (!isUnavailable(error)) throw error;
      this.#log.warn({ err: error }, 'a hold could not be voided now; it ends with its lease');
      return undefined;
    }
  }
}
