import type { FastifyBaseLogger } from 'fastify';
import type { Database } from '../db/database.ts';
import { type Hold, placeHold } from '../ledger/hold.ts';
import type { Metrics } from '../metrics.ts';
import type { Order } from '../speech/order.ts';
import { BalanceHolds } from './balance-holds.ts';
import type { Authorization } from './strategy.ts';

/** Why a card request was not authorized. */
export interface CreditRefusal {
  readonly reason: 'no_account' | 'unknown_account' | 'insufficient_funds';
  readonly balanceMicroUsd: bigint;
}

/** Pays an order from a prepaid card account: the exact price is debited before synthesis. */
export class CardCredits {
  readonly #db: Database;
  readonly #leaseSeconds: number;
  readonly #holds: BalanceHolds;

  /** @param leaseSeconds how long a hold stands when nobody ends or renews it */
  constructor(db: Database, leaseSeconds: number, log: FastifyBaseLogger, metrics: Metrics) {
    this.#db = db;
    this.#leaseSeconds = leaseSeconds;
    this.#holds = new BalanceHolds(db, 'card', log, metrics);
  }

  /** No account, an unknown one and too small a balance are all refused, with nothing debited (R12). */
  async authorize(order: Order, accountId: string | undefined): Promise<Authorization<CreditRefusal>> {
    if (!accountId) return { outcome: 'refused', refusal: { reason: 'no_account', balanceMicroUsd: 0n } };
    const askedAt = performance.now();
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
        this.#holds.placed(result.hold);
        return { outcome: 'held', hold: this.#hold(result.hold, askedAt) };
    }
  }

  #hold(hold: Hold, askedAt: number) {
    return {
      balanceMicroUsd: hold.balanceMicroUsd,
      keep: (lost: () => void) => this.#holds.keep(hold, { askedAt, seconds: this.#leaseSeconds }, lost),
      capture: () => this.#holds.capture(hold),
      void: async () => void (await this.#holds.void(hold)),
    };
  }
}
