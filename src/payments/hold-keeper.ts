import type { FastifyBaseLogger } from 'fastify';
import type { Database } from '../db/database.ts';
import { isUnavailable } from '../db/database-errors.ts';
import type { GroupedStatement } from '../db/grouped-statement.ts';
import { retryWhileAway } from '../db/retry-while-away.ts';
import { type Captured, type Hold, renewHold, voidHold } from '../ledger/hold.ts';
import type { SpokenBy } from '../ledger/paid-for.ts';
import { type GivenBack, giveBack } from '../ledger/reversal.ts';
import type { Answer } from '../lib/answer.ts';
import type { UnpaidWork } from '../limits/unpaid-work.ts';
import type { Flow, Metrics } from '../observability/metrics.ts';
import { BalanceHold, type Holder, type ShowBalance } from './balance-hold.ts';
import type { GivingBack } from './giving-back.ts';
import { keepLease } from './kept-lease.ts';
import type { Receipt } from './payment-flow.ts';
import { type Refused, refused } from './refusal.ts';
import type { Placed, UnfinishedHolds } from './unfinished-holds.ts';

/** What the payer of speech that failed is told: the hold on his balance was voided. */
export const NOT_CHARGED = 'Nothing was charged.';

/** How long a hold's lease outlasts the synthesis: long enough for the capture and its last, slow statement. */
const LEASE_RESERVE_SECONDS = 30;

/** How long a hold's lease must be, so that it outlasts a synthesis of at most so long and its capture. */
export const leaseSeconds = (synthesisTimeoutMs: number): number => synthesisTimeoutMs / 1000 + LEASE_RESERVE_SECONDS;

export interface HoldKeeperParts {
  readonly db: Database;
  readonly log: FastifyBaseLogger;
  readonly metrics: Metrics;
  /** How long a hold stands when nobody ends or renews it. */
  readonly leaseSeconds: number;
  readonly work: UnpaidWork;
  readonly unfinished: UnfinishedHolds;
  readonly givingBack: GivingBack;
  /** Of all flows. */
  readonly captures: GroupedStatement<Captured, boolean>;
  /** How long a capture is repeated while the database is away; the lease of a hold is longer. */
  readonly capturePatienceMs: number;
}

/** What the ledger made of a hold that it was asked for; the hold where it was placed. */
interface Placement<P extends Placed, R extends Receipt> {
  readonly outcome: 'asked';
  readonly placed: P;
  readonly hold: BalanceHold<R> | undefined;
}

/** Places the holds of one flow's balances, and ends them: exactly one of capture and void. */
export class HoldKeeper {
  readonly #flow: Flow;
  readonly #parts: HoldKeeperParts;

  constructor(flow: Flow, parts: HoldKeeperParts) {
    this.#flow = flow;
    this.#parts = parts;
  }

  /**
   * Places a hold for this answer, unless the payer's unpaid work leaves no room for more now.
   * @param payer whose balance it is
   * @param statement places it in the name of that process
   */
  async place<P extends Placed, R extends Receipt>(
    payer: string,
    answer: Answer,
    statement: (processId: number) => Promise<P>,
    holder: Holder<R>,
  ): Promise<Placement<P, R> | Refused<'RATE_LIMITED'>> {
    const { work, unfinished, leaseSeconds, metrics } = this.#parts;
    const begun = work.begin(payer);
    if (begun.outcome === 'refused') return refused('RATE_LIMITED', begun.reason);
    const { end: endWork } = begun;
    const lease = { askedAt: performance.now(), seconds: leaseSeconds };
    let hold: BalanceHold<R> | undefined;
    try {
      const placed = await unfinished.follow(answer, statement, (entry) => this.#giveBack(entry));
      if (placed.hold) {
        hold = new BalanceHold(this, placed.hold, { holder, lease, endWork });
        metrics.holdMoved(this.#flow, 'placed', placed.hold.amountMicroUsd);
      }
      return { outcome: 'asked', placed, hold };
    } finally {
      if (!hold) endWork('not begun');
    }
  }

  /** A hold that was placed for a job, which ends it. It has no lease, and nobody waits for its answer. */
  ofJob<R extends Receipt>(entry: Hold, show: ShowBalance<R>): BalanceHold<R> {
    const lease = { askedAt: performance.now(), seconds: Number.POSITIVE_INFINITY };
    return new BalanceHold(this, entry, { holder: { show }, lease, endWork: () => {} });
  }

  /**
   * Keeps a hold's lease until the returned function is called.
   * @param askedAt when it was placed, by the monotonic clock, or earlier
   * @param lost when the lease could not be kept
   */
  keep(hold: Hold, lease: { readonly askedAt: number; readonly seconds: number }, lost: () => void): () => void {
    const { askedAt, seconds } = lease;
    const renew = () => renewHold(this.#parts.db, hold, seconds);
    return keepLease({ askedAt, durationMs: seconds * 1000, renew }, () => {
      this.#parts.log.warn('the lease of a hold was lost while its speech was heard');
      lost();
    });
  }

  /**
   * A capture whose answer was lost is repeated: it finds its own hold posted. False when the hold is lost, or others
   * may take this process for dead: then nothing may be delivered, and nothing is charged in the end. So is it when this
   * throws: the hold is void, or is given back once the database tells what became of it.
   */
  async capture(hold: Hold, upstream: SpokenBy | undefined): Promise<boolean> {
    const { captures, unfinished, capturePatienceMs } = this.#parts;
    let captured: boolean;
    try {
      captured = await retryWhileAway(capturePatienceMs, () => captures.execute({ ...hold, upstream }));
    } catch (error) {
      if (isUnavailable(error)) this.#giveBack(hold);
      else await this.#giveBackNow(hold);
      throw error;
    }
    if (!captured) {
      // That of a process which counts as dead is pending still.
      await this.void(hold);
      return false;
    }
    this.#parts.metrics.holdMoved(this.#flow, 'captured', hold.amountMicroUsd);
    if (unfinished.captured(hold.id)) return true;
    this.#giveBack(hold);
    return false;
  }

  /**
   * Tells the balance after it; undefined when the hold had ended before, or the database is away: the reconciler voids
   * it then, once its lease has passed.
   */
  async void(hold: Hold): Promise<bigint | undefined> {
    try {
      const balance = await voidHold(this.#parts.db, hold);
      if (balance !== undefined) this.#parts.metrics.holdMoved(this.#flow, 'voided', hold.amountMicroUsd);
      return balance;
    } catch (error) {
      if (!isUnavailable(error)) throw error;
      this.#parts.log.warn({ err: error }, 'a hold could not be voided now; it ends with its lease');
      return undefined;
    } finally {
      this.#parts.unfinished.ended(hold.id);
    }
  }

  /** Goes on until the hold is void or reversed, whatever became of its capture. Nothing may have been delivered. */
  #giveBack(hold: Hold): void {
    this.#parts.givingBack.add(hold, (outcome) => this.#givenBack(hold, outcome));
  }

  async #giveBackNow(hold: Hold): Promise<void> {
    try {
      this.#givenBack(hold, await giveBack(this.#parts.db, hold));
    } catch (error) {
      this.#parts.log.warn({ err: error }, 'a hold could not be given back now');
      this.#giveBack(hold);
    }
  }

  #givenBack(hold: Hold, outcome: GivenBack): void {
    if (outcome !== 'ended') this.#parts.metrics.holdMoved(this.#flow, outcome, hold.amountMicroUsd);
    this.#parts.unfinished.ended(hold.id);
  }
}
