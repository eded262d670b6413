import { setTimeout as sleep } from 'node:timers/promises';
import type { FastifyBaseLogger } from 'fastify';
import type { Database } from '../db/database.ts';
import { isUnavailable } from '../db/errors.ts';
import { captureHold, type Hold, placeHold, voidHold } from '../ledger/hold.ts';
import type { Metrics } from '../metrics.ts';
import type { Order } from '../speech/order.ts';
import type { Authorization } from './strategy.ts';

/** How long a capture is repeated while the database is away; the lease of a hold is longer. */
const CAPTURE_PATIENCE_MS = 20_000;
const RETRY_EVERY_MS = 250;
/** What a hold's lease leaves after synthesis and capture at their slowest. */
const LEASE_RESERVE_SECONDS = 30;

/** Why a card request was not authorized. */
export interface CreditRefusal {
  readonly reason: 'no_account' | 'unknown_account' | 'insufficient_funds';
  readonly balanceMicroUsd: bigint;
}

/** Pays an order from a prepaid card account: the exact price is debited before synthesis. */
export class CardCredits {
  readonly #db: Database;
  readonly #leaseSeconds: number;
  readonly #log: FastifyBaseLogger;
  readonly #metrics: Metrics;

  /** @param synthesisTimeoutMs the longest that a synthesis may take; the lease of a hold outlasts it */
  constructor(db: Database, synthesisTimeoutMs: number, log: FastifyBaseLogger, metrics: Metrics) {
    this.#db = db;
    this.#leaseSeconds = (synthesisTimeoutMs + CAPTURE_PATIENCE_MS) / 1000 + LEASE_RESERVE_SECONDS;
    this.#log = log;
    this.#metrics = metrics;
  }

  /** No account, an unknown one and too small a balance are all refused, with nothing debited (R12). */
  async authorize(order: Order, accountId: string | undefined): Promise<Authorization<CreditRefusal>> {
    if (!accountId) return { outcome: 'refused', refusal: { reason: 'no_account', balanceMicroUsd: 0n } };
    const result = await placeHold(this.#db, accountId, order.priceMicroUsd, this.#leaseSeconds);
    switch (result.outcome) {
      case 'unknown_account':
        return { outcome: 'refused', refusal: { reason: 'unknown_account', balanceMicroUsd: 0n } };
      case 'insufficient_funds':
        return {
          outcome: 'refused',
          refusal: { reason: 'insufficient_funds', balanceMicroUsd: result.balanceMicroUsd },
        };
      case 'held':
        this.#metrics.holdMoved('card', 'placed', order.priceMicroUsd);
        return { outcome: 'held', hold: this.#hold(result.hold) };
    }
  }

  #hold(hold: Hold) {
    return {
      balanceMicroUsd: hold.balanceMicroUsd,
      capture: () => this.#capture(hold),
      void: () => this.#void(hold),
    };
  }

  /** A capture whose answer was lost is repeated: it finds its own hold posted. */
  async #capture(hold: Hold): Promise<boolean> {
    const giveUpAt = performance.now() + CAPTURE_PATIENCE_MS;
    for (;;) {
      try {
        const captured = await captureHold(this.#db, hold);
        if (captured) this.#metrics.holdMoved('card', 'captured', hold.amountMicroUsd);
        return captured;
      } catch (error) {
        if (!isUnavailable(error) || performance.now() >= giveUpAt) throw error;
        await sleep(RETRY_EVERY_MS);
      }
    }
  }

  /** When the database is away, the hold is voided by the reconciler once its lease has passed. */
  async #void(hold: Hold): Promise<void> {
    try {
      const balance = await voidHold(this.#db, hold);
      if (balance !== undefined) this.#metrics.holdMoved('card', 'voided', hold.amountMicroUsd);
    } catch (error) {
      if (!isUnavailable(error)) throw error;
      this.#log.warn({ err: error }, 'a hold could not be voided now; it ends with its lease');
    }
  }
}
