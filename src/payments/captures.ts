import { setTimeout as sleep } from 'node:timers/promises';
import type { FastifyBaseLogger } from 'fastify';
import type { Database } from '../db/database.ts';
import { isUnavailable } from '../db/database-errors.ts';
import { GroupedStatement } from '../db/hot-statements.ts';
import { type CaptureRequest, captureHolds, type HoldRecord } from '../ledger/hold.ts';
import { testPoint } from '../lib/test-point.ts';

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

  /** How many wait, and for how long the first has. */
  get waiting(): { readonly count: number; readonly oldestSeconds: number } {
    const [oldest] = this.#waiting;
    return { count: this.#waiting.size, oldestSeconds: oldest ? (performance.now() - oldest.since) / 1000 : 0 };
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
              'the database is unavailable, so a charge for delivered audio waits. It will be retried; check the database',
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
      'the process stopped while the database was unavailable, so the delivered responses in this line are not charged. Stop the service only while the database is available',
    );
  }
}
