import type { FastifyBaseLogger } from 'fastify';
import type { Database } from '../db/database.ts';
import { type Hold, placeHold } from '../ledger/hold.ts';
import type { Metrics } from '../metrics.ts';
import type { Order } from '../speech/order.ts';
import { BalanceHolds, type Delivery, leaseSeconds } from './balance-holds.ts';
import type { Answer } from './deliveries.ts';
import { paidFor } from './paid-for.ts';
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

  /** @param synthesisTimeoutMs the longest that a synthesis may take; the lease of a hold outlasts it */
  constructor(db: Database, synthesisTimeoutMs: number, log: FastifyBaseLogger, metrics: Metrics, delivery: Delivery) {
    this.#db = db;
    this.#leaseSeconds = leaseSeconds(synthesisTimeoutMs);
    this.#holds = new BalanceHolds(db, 'card', log, metrics, delivery);
  }

  /** No account, an unknown one and too small a balance are all refused, with nothing debited (R12). */
  async authorize(
    order: Order,
    accountId: string | undefined,
    traceId: string,
    answer: Answer,
  ): Promise<Authorization<CreditRefusal>> {
    if (!accountId) return { outcome: 'refused', refusal: { reason: 'no_account', balanceMicroUsd: 0n } };
    const bought = paidFor(order, traceId);
    const result = await this.#holds.place(answer, (processId) =>
      placeHold(this.#db, accountId, order.priceMicroUsd, this.#leaseSeconds, bought, processId),
    );
    switch (result.outcome) {
      case 'unknown_account':
        return { outcome: 'refused', refusal: { reason: 'unknown_account', balanceMicroUsd: 0n } };
      case 'insufficient_funds':
        return {
          outcome: 'refused',
          refusal: { reason: 'insufficient_funds', balanceMicroUsd: result.balanceMicroUsd },
        };
      case 'held':
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
