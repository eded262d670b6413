import type { FastifyBaseLogger } from 'fastify';
import type { Database } from '../db/database.ts';
import { type Hold, placeHold } from '../ledger/hold.ts';
import type { Metrics } from '../metrics.ts';
import type { Order } from '../speech/order.ts';
import { BalanceHolds, leaseSeconds } from './balance-holds.ts';
import type { Authorization } from './strategy.ts';

/** Why a card request was not authorized. */
export interface CreditRefusal {
  readonly reason: 'no_account' | 'unknown_account' | 'insufficient_funds';
  readonly balanceMicroUsd: bigint;
}

/** Pays an order from a prepaid card account: the exact price is debited before synthesis. */
export class CardCredits {
  readonly #db: Database;
  readonly #livemode: boolean;
  readonly #leaseSeconds: number;
  readonly #holds: BalanceHolds;

  /**
   * @param livemode of the processor's key: accounts of the other mode are unknown
   * @param synthesisTimeoutMs the longest that a synthesis may take; the lease of a hold outlasts it
   */
  constructor(db: Database, livemode: boolean, synthesisTimeoutMs: number, log: FastifyBaseLogger, metrics: Metrics) {
    this.#db = db;
    this.#livemode = livemode;
    this.#leaseSeconds = leaseSeconds(synthesisTimeoutMs);
    this.#holds = new BalanceHolds(db, 'card', log, metrics);
  }

  /** No account, an unknown one and too small a balance are all refused, with nothing debited (R12). */
  async authorize(order: Order, accountId: string | undefined): Promise<Authorization<CreditRefusal>> {
    if (!accountId) return { outcome: 'refused', refusal: { reason: 'no_account', balanceMicroUsd: 0n } };
    const result = await placeHold(this.#db, accountId, order.priceMicroUsd, this.#leaseSeconds, this.#livemode);
    switch (result.outcome) {
      case 'unknown_account':
        return { outcome: 'refused', refusal: { reason: 'unknown_account', balanceMicroUsd: 0n } };
      case 'insufficient_funds':
        return {
          outcome: 'refused',
          refusal: { reason: 'insufficient_funds', balanceMicroUsd: result.balanceMicroUsd },
        };
      case 'held':
        this.#holds.placed(result.hold);
        return { outcome: 'held', hold: this.#hold(result.hold) };
    }
  }

  #hold(hold: Hold) {
    return {
      balanceMicroUsd: hold.balanceMicroUsd,
      capture: () => this.#holds.capture(hold),
      void: async () => void (await this.#holds.void(hold)),
    };
  }
}
