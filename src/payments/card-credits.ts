import type { FastifyBaseLogger } from 'fastify';
import type { Database } from '../db/database.ts';
import { type Hold, placeHold } from '../ledger/hold.ts';
import { type EndWork, endWith, holdFor, type UnpaidWork } from '../limits/unpaid-work.ts';
import type { Metrics } from '../metrics.ts';
import type { Order } from '../speech/order.ts';
import { BalanceHolds, type Delivery } from './balance-holds.ts';
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
  readonly #livemode: boolean;
  readonly #leaseSeconds: number;
  readonly #holds: BalanceHolds;
  readonly #work: UnpaidWork;

  /**
   * @param options.livemode of the processor's key: accounts of the other mode are unknown
   * @param options.leaseSeconds how long a hold stands when nobody ends or renews it
   */
  constructor(
    db: Database,
    options: {
      livemode: boolean;
      leaseSeconds: number;
      work: UnpaidWork;
      log: FastifyBaseLogger;
      metrics: Metrics;
      delivery: Delivery;
    },
  ) {
    this.#db = db;
    this.#livemode = options.livemode;
    this.#leaseSeconds = options.leaseSeconds;
    this.#holds = new BalanceHolds(db, 'card', options.log, options.metrics, options.delivery);
    this.#work = options.work;
  }

  /** No account, an unknown one and too small a balance are all refused, with nothing debited (R12). */
  async authorize(
    order: Order,
    accountId: string | undefined,
    traceId: string,
    answer: Answer,
  ): Promise<Authorization<CreditRefusal>> {
    if (!accountId) return { outcome: 'refused', refusal: { reason: 'no_account', balanceMicroUsd: 0n } };
    const endWork = this.#work.begin(accountId.toLowerCase());
    if (typeof endWork === 'string') return { outcome: 'busy', reason: endWork };
    const askedAt = performance.now();
    const terms = { paidFor: paidFor(order, traceId), livemode: this.#livemode };
    const placing = this.#holds.place(answer, (processId) =>
      placeHold(this.#db, accountId, order.priceMicroUsd, this.#leaseSeconds, { ...terms, processId }),
    );
    const result = await holdFor(endWork, placing);
    switch (result.outcome) {
      case 'unknown_account':
        return { outcome: 'refused', refusal: { reason: 'unknown_account', balanceMicroUsd: 0n } };
      case 'insufficient_funds':
        return {
          outcome: 'refused',
          refusal: { reason: 'insufficient_funds', balanceMicroUsd: result.balanceMicroUsd },
        };
      case 'held':
        return { outcome: 'held', hold: this.#hold(result.hold, askedAt, endWork) };
    }
  }

  #hold(hold: Hold, askedAt: number, endWork: EndWork) {
    return {
      balanceMicroUsd: hold.balanceMicroUsd,
      keep: (lost: () => void) => this.#holds.keep(hold, { askedAt, seconds: this.#leaseSeconds }, lost),
      capture: () => endWith(endWork, this.#holds.capture(hold), (captured) => captured),
      void: async () => void (await endWith(endWork, this.#holds.void(hold), () => false)),
    };
  }
}
