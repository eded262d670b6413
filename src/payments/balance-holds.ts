import type { FastifyBaseLogger } from 'fastify';
import type { Database } from '../db/database.ts';
import { isUnavailable } from '../db/errors.ts';
import { persistently } from '../db/patience.ts';
import { captureHold, type Hold, renewHold, voidHold } from '../ledger/hold.ts';
import { type GivenBack, giveBack } from '../ledger/reversal.ts';
import type { Flow, Metrics } from '../metrics.ts';
import type { Answer, Deliveries, Placed } from './deliveries.ts';
import type { GivingBack } from './giving-back.ts';
import { keepLease } from './kept-lease.ts';

/** How long a hold's lease outlasts the synthesis: long enough for the capture and its last, slow statement. */
const LEASE_RESERVE_SECONDS = 30;

/** How long a hold's lease must be, so that it outlasts a synthesis of at most so long and its capture. */
export const leaseSeconds = (synthesisTimeoutMs: number): number => synthesisTimeoutMs / 1000 + LEASE_RESERVE_SECONDS;

/** What the holds of both flows share. */
export interface Delivery {
  readonly deliveries: Deliveries;
  readonly givingBack: GivingBack;
  /** How long a capture is repeated while the database is away; the lease of a hold is longer. */
  readonly capturePatienceMs: number;
}

/** Places the holds of one flow's balances, and ends them: exactly one of capture and void. */
export class BalanceHolds {
  readonly #db: Database;
  readonly #flow: Flow;
  readonly #log: FastifyBaseLogger;
  readonly #metrics: Metrics;
  readonly #delivery: Delivery;

  constructor(db: Database, flow: Flow, log: FastifyBaseLogger, metrics: Metrics, delivery: Delivery) {
    this.#db = db;
    this.#flow = flow;
    this.#log = log;
    this.#metrics = metrics;
    this.#delivery = delivery;
  }

  /** Places a hold for this answer. @param statement places it in the name of that process */
  async place<R extends Placed>(answer: Answer, statement: (processId: number) => Promise<R>): Promise<R> {
    const result = await this.#delivery.deliveries.follow(answer, statement, (hold) => this.#giveBack(hold));
    if (result.hold) this.#metrics.holdMoved(this.#flow, 'placed', result.hold.amountMicroUsd);
    return result;
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
   * A capture whose answer was lost is repeated: it finds its own hold posted. False when the hold is lost, or others
   * may take this process for dead: then nothing may be delivered, and nothing is charged in the end. So is it when this
   * throws: the hold is void, or is given back once the database tells what became of it.
   */
  async capture(hold: Hold): Promise<boolean> {
    const { deliveries, capturePatienceMs } = this.#delivery;
    let captured: boolean;
    try {
      captured = await persistently(capturePatienceMs, () => captureHold(this.#db, hold));
    } catch (error) {
      if (isUnavailable(error)) this.#giveBack(hold);
      else await this.#giveBackNow(hold);
      throw error;
    }
    if (!captured) {
      deliveries.ended(hold.id);
      return false;
    }
    this.#metrics.holdMoved(this.#flow, 'captured', hold.amountMicroUsd);
    if (deliveries.captured(hold.id)) return true;
    this.#giveBack(hold);
    return false;
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
    } finally {
      this.#delivery.deliveries.ended(hold.id);
    }
  }

  /** Goes on until the hold is void or reversed, whatever became of its capture. Nothing may have been delivered. */
  #giveBack(hold: Hold): void {
    this.#delivery.givingBack.add(hold, (outcome) => this.#givenBack(hold, outcome));
  }

  async #giveBackNow(hold: Hold): Promise<void> {
    try {
      this.#givenBack(hold, await giveBack(this.#db, hold));
    } catch (error) {
      this.#log.warn({ err: error }, 'a hold could not be given back now');
      this.#giveBack(hold);
    }
  }

  #givenBack(hold: Hold, outcome: GivenBack): void {
    if (outcome !== 'ended') this.#metrics.holdMoved(this.#flow, outcome, hold.amountMicroUsd);
    this.#delivery.deliveries.ended(hold.id);
  }
}
