import { setTimeout as sleep } from 'node:timers/promises';
import type { FastifyBaseLogger } from 'fastify';
import { v7 as uuidv7 } from 'uuid';
import type { Database } from '../db/database.ts';
import { isUnavailable } from '../db/database-errors.ts';
import { GroupedStatement } from '../db/hot-statements.ts';
import type { LeaseRenewer } from '../db/lease.ts';
import {
  type CaptureRequest,
  captureHolds,
  type HoldRecord,
  type Placed,
  type UpstreamUsage,
  voidHold,
} from '../ledger/hold.ts';
import { testPoint } from '../lib/test-point.ts';
import type { Flow, Metrics } from '../observability/metrics.ts';
import type { UnpaidWorkLimiter, WorkEnd } from './limits/unpaid-work-limiter.ts';
import { type Receipt, type Refused, refused } from './refusal.ts';
import type { Held, PaymentHold } from './speak.ts';

const LOST =
  'a delivered response is probably not charged: its hold had expired or was lost, or the process stopped before the database confirmed the charge. Check the database';

export interface HoldPlacerParts {
  readonly db: Database;
  readonly metrics: Metrics;
  readonly unpaidWork: UnpaidWorkLimiter;
  readonly leases: LeaseRenewer<HoldRecord>;
  readonly captures: Captures;
}

/** Makes a flow's receipt from the balance and the charge, in micro-USD. */
type ReceiptOf<R extends Receipt> = (balanceMicroUsd: bigint, chargedMicroUsd: bigint) => R;

interface HoldOptions<R extends Receipt> {
  /** The request's. */
  readonly log: FastifyBaseLogger;
  readonly receiptOf: ReceiptOf<R>;
  onDelivered?(hold: HoldRecord, audio: Buffer | undefined): void;
  /** Asked when the void had no effect or failed. Returns a refusal if another request may have the payment (R64). */
  refuseUnvoided?(hold: HoldRecord): Promise<Refused | undefined>;
}

interface BalanceHoldParts<R extends Receipt> extends HoldPlacerParts {
  readonly flow: Flow;
  readonly options: HoldOptions<R>;
  /** From when its lease counts, in milliseconds of the monotonic clock. */
  readonly placedAt: number;
  readonly endWork: (end: WorkEnd) => void;
}

const isPlaced = (result: { readonly outcome: string }): result is Placed => result.outcome === 'placed';

/** Places the holds of one flow. */
export class HoldPlacer {
  readonly #flow: Flow;
  readonly #parts: HoldPlacerParts;

  constructor(flow: Flow, parts: HoldPlacerParts) {
    this.#flow = flow;
    this.#parts = parts;
  }

  /**
   * Places a hold, unless the payer has too much unpaid work, or too many captures wait.
   * @param placeInLedger places the record of this id in the ledger
   */
  async place<NotPlaced extends { readonly outcome: string }, R extends Receipt>(
    payer: string,
    placeInLedger: (id: string) => Promise<Placed | NotPlaced>,
    options: HoldOptions<R>,
  ): Promise<Held<BalanceHold<R>> | NotPlaced | Refused<'RATE_LIMITED' | 'TTS_UNAVAILABLE'>> {
    if (this.#parts.captures.isFull) return refused('TTS_UNAVAILABLE', 'too_many_captures');
    const begun = this.#parts.unpaidWork.begin(payer);
    if (begun.outcome === 'refused') return refused('RATE_LIMITED', begun.reason);
    const { end: endWork } = begun;
    const placedAt = performance.now();
    let hold: BalanceHold<R> | undefined;
    try {
      const placed = await placeInLedger(uuidv7());
      if (!isPlaced(placed)) return placed;
      hold = new BalanceHold(placed.hold, { ...this.#parts, flow: this.#flow, options, placedAt, endWork });
      this.#parts.metrics.holdMoved(this.#flow, 'placed', placed.hold.amountMicroUsd);
      return { outcome: 'held', hold };
    } finally {
      if (!hold) endWork('not begun');
    }
  }

  /** The job ends this hold in its own transaction, so it has no lease. */
  ofJob<R extends Receipt>(hold: HoldRecord, options: HoldOptions<R>): BalanceHold<R> {
    const own = { flow: this.#flow, options, placedAt: performance.now(), endWork: () => {} };
    return new BalanceHold(hold, { ...this.#parts, ...own });
  }
}

/** Balance money that is held for one response, and captured after its delivery (R55). */
export class BalanceHold<R extends Receipt> implements PaymentHold {
  /** Its record in the ledger. */
  readonly record: HoldRecord;
  readonly #parts: BalanceHoldParts<R>;
  #balanceMicroUsd: bigint;
  #chargedMicroUsd: bigint;

  constructor(record: HoldRecord, parts: BalanceHoldParts<R>) {
    this.record = record;
    this.#parts = parts;
    this.#balanceMicroUsd = record.balanceMicroUsd;
    this.#chargedMicroUsd = record.amountMicroUsd;
  }

  get receipt(): R {
    return this.#parts.options.receiptOf(this.#balanceMicroUsd, this.#chargedMicroUsd);
  }

  keepLease(onLost: () => void): () => void {
    const { leases, options, placedAt } = this.#parts;
    return leases.keep(this.record, placedAt, () => {
      options.log.warn(
        { hold: this.record.id },
        'a hold was not renewed in time, so its response is cut off and its caller is not charged; only a response that was already complete may be charged. Check the database',
      );
      onLost();
    });
  }

  ownsLease(): boolean {
    return this.#parts.leases.ownsLease(this.record);
  }

  async capture(upstream: UpstreamUsage | undefined, audio?: Buffer): Promise<boolean> {
    const { flow, options, captures, metrics, endWork } = this.#parts;
    const { record } = this;
    let isCharged = false;
    // Stores the audio first, also if the capture then fails: it is served only for a captured hold.
    options.onDelivered?.(record, audio);
    try {
      isCharged = await captures.capture({ ...record, upstream }, options.log);
      metrics.holdMoved(flow, isCharged ? 'captured' : 'lost', record.amountMicroUsd);
      if (!isCharged) options.log.warn({ hold: record.id }, LOST);
    } finally {
      endWork(isCharged ? 'paid' : 'unpaid');
    }
    return isCharged;
  }

  /**
   * Restores the debit after a failed synthesis: then the receipt says that 0 was charged (R33). While the database is
   * unavailable the hold ends with its lease; the receipt shows the balance after that.
   */
  async void(): Promise<Refused | undefined> {
    const { flow, options, db, metrics, endWork } = this.#parts;
    const { amountMicroUsd } = this.record;
    try {
      const { isVoided, isCharged, balanceMicroUsd } = await voidHold(db, this.record);
      this.#balanceMicroUsd = balanceMicroUsd;
      this.#chargedMicroUsd = isCharged ? amountMicroUsd : 0n;
      if (isVoided) {
        metrics.holdMoved(flow, 'voided', amountMicroUsd);
        return undefined;
      }
    } catch (error) {
      if (!isUnavailable(error)) throw error;
      options.log.warn(
        { err: error, hold: this.record.id },
        'failed to void a hold. It is voided when its lease expires, and the caller is not charged; no action is needed',
      );
      this.#balanceMicroUsd = this.record.balanceMicroUsd + amountMicroUsd;
      this.#chargedMicroUsd = 0n;
    } finally {
      endWork('unpaid');
    }
    return options.refuseUnvoided?.(this.record);
  }
}

const GROUP_WITHIN_MS = 10;
const FIRST_RETRY_MS = 100;
const LONGEST_RETRY_MS = 1_000;
/** Counted from the stop, or from the end of a response that ends later. After it the hold expires, uncharged. */
const STOP_TIMEOUT_MS = 5_000;

interface WaitingCapture {
  readonly amountMicroUsd: bigint;
  readonly since: number;
}

/** Captures holds of delivered responses, in shared statements, and retries while the database is unavailable. */
export class Captures {
  readonly #log: FastifyBaseLogger;
  readonly #maxWaiting: number;
  readonly #statement: GroupedStatement<CaptureRequest, boolean>;
  readonly #waiting = new Set<WaitingCapture>();
  readonly #givenUp: WaitingCapture[] = [];
  #stoppingSince = Number.POSITIVE_INFINITY;

  constructor(db: Database, log: FastifyBaseLogger, maxWaiting: number) {
    this.#log = log;
    this.#maxWaiting = maxWaiting;
    this.#statement = new GroupedStatement({
      run: (holds) => captureHolds(db, holds),
      keyOf: ({ id }) => id,
      groupWithinMs: GROUP_WITHIN_MS,
    });
  }

  get waiting(): number {
    return this.#waiting.size;
  }

  /** Whether so many wait that no new hold may be placed (R55). */
  get isFull(): boolean {
    return this.#waiting.size >= this.#maxWaiting;
  }

  async capture(hold: CaptureRequest & Pick<HoldRecord, 'amountMicroUsd'>, log: FastifyBaseLogger): Promise<boolean> {
    const waiting = { amountMicroUsd: hold.amountMicroUsd, since: performance.now() };
    this.#waiting.add(waiting);
    try {
      for (let retryMs = FIRST_RETRY_MS; ; retryMs = Math.min(retryMs * 2, LONGEST_RETRY_MS)) {
        try {
          testPoint('answer delivered');
          return await this.#statement.execute(hold);
        } catch (error) {
          if (!isUnavailable(error)) throw error;
          const isFirstFailure = retryMs === FIRST_RETRY_MS;
          if (isFirstFailure)
            log.warn(
              { err: error, hold: hold.id },
              'the database did not confirm a charge for delivered audio. The service retries it; check the database if this repeats',
            );
          if (performance.now() >= Math.max(this.#stoppingSince, waiting.since) + STOP_TIMEOUT_MS) {
            this.#givenUp.push(waiting);
            return false;
          }
        }
        await sleep(retryMs);
      }
    } finally {
      this.#waiting.delete(waiting);
    }
  }

  stop(): void {
    this.#stoppingSince = performance.now();
  }

  /** Logs how many captures a stop gave up, and their amount. */
  close(): void {
    if (this.#givenUp.length === 0) return;
    const amountMicroUsd = this.#givenUp.reduce((sum, capture) => sum + capture.amountMicroUsd, 0n);
    this.#log.error(
      { captures: this.#givenUp.length, amountMicroUsd },
      'the process stopped while the database was unavailable, so delivered responses are probably not charged: the fields captures and amountMicroUsd say how many and how much. Stop the service only while the database is available',
    );
  }
}
