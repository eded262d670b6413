import type { FastifyBaseLogger } from 'fastify';
import { isUnavailable } from '../db/database-errors.ts';
import { retryWhileAway } from '../db/retry-while-away.ts';
import type { SpokenBy } from '../ledger/paid-for.ts';
import { testPoint } from '../lib/test-point.ts';
import type { Metrics } from '../observability/metrics.ts';
import type { Booking } from './book-settlement.ts';
import type { Chain } from './chain.ts';
import type { Facilitator, FacilitatorPayment, SettleAnswer } from './facilitator.ts';
import type { Payment } from './payment.ts';
import type { PaymentOutcomes } from './payment-outcomes.ts';
import type { Reservations } from './reservations.ts';
import { DATABASE_PATIENCE_MS, type Resolver } from './resolver.ts';

/** How a settlement ended, or that only the chain can tell. */
export type SettlementOutcome =
  | ({ readonly outcome: 'settled' } & Booking)
  | { readonly outcome: 'refused'; readonly reason: string }
  /** `transaction` was named by the facilitator, or seen on the chain. */
  | { readonly outcome: 'unknown'; readonly transaction: string | undefined }
  /** The reservation was taken over; no settle was sent. */
  | { readonly outcome: 'lost' };

/** How long the chain is asked for a transfer that need not be confirmed: our node may be behind the facilitator's. */
const INCLUSION_TIMEOUT_MS = 5_000;

export interface SettlementOptions {
  readonly upstream?: SpokenBy | undefined;
  readonly timeoutMs?: number;
  readonly signal?: AbortSignal | undefined;
}

/**
 * Turns a reserved payment into a settled one, at most once:
 *
 *     reserved -- recorded --> settling -- one settle is sent -->
 *       no transaction, for a reason that excludes one -> refused, the chain is watched
 *       anything else, and the chain proves it in time -> settled
 *       anything else                                  -> unknown, the chain tells (Resolver)
 *
 * After `settling` nothing is sent again, by any process, ever.
 */
export class Settlement {
  readonly #reservations: Reservations;
  readonly #outcomes: PaymentOutcomes;
  readonly #facilitator: Facilitator;
  readonly #chain: Chain;
  readonly #resolver: Resolver;
  readonly #metrics: Metrics;
  readonly #log: FastifyBaseLogger;

  constructor(parts: {
    reservations: Reservations;
    outcomes: PaymentOutcomes;
    facilitator: Facilitator;
    chain: Chain;
    resolver: Resolver;
    metrics: Metrics;
    log: FastifyBaseLogger;
  }) {
    this.#reservations = parts.reservations;
    this.#outcomes = parts.outcomes;
    this.#facilitator = parts.facilitator;
    this.#chain = parts.chain;
    this.#resolver = parts.resolver;
    this.#metrics = parts.metrics;
    this.#log = parts.log;
  }

  /**
   * Settles a reserved payment. Throws only before a settle is sent, such as when the database is away.
   * @param upstream that spoke what is paid for; of a deposit none
   * @param timeoutMs how long the chain is asked; the signal ends that early
   */
  async settle(
    payment: Payment,
    request: FacilitatorPayment,
    { upstream, timeoutMs = INCLUSION_TIMEOUT_MS, signal }: SettlementOptions,
  ): Promise<SettlementOutcome> {
    testPoint('x402 audio stored');
    if (!(await this.#retryWhileAway(() => this.#reservations.beginSettling(payment, upstream))))
      return { outcome: 'lost' };
    testPoint('x402 settling');
    let answer: SettleAnswer | undefined;
    try {
      answer = await this.#facilitator.settle(request);
      testPoint('x402 settle answered');
      return await this.#record(payment, answer, { timeoutMs, signal });
    } catch (error) {
      // Whatever it is, the money may have moved (R62).
      this.#log.error({ err: error, payment: payment.id }, 'the end of a settlement could not be recorded');
      const transaction = answer?.outcome === 'open' ? answer.transaction : undefined;
      // While the database is away, the payment becomes one in doubt when its lease ends.
      if (!isUnavailable(error)) await this.#outcomes.markUnknown(payment, transaction).catch(() => {});
      this.#metrics.paymentMoved(payment, 'unknown');
      return { outcome: 'unknown', transaction };
    }
  }

  async #record(
    payment: Payment,
    answer: SettleAnswer,
    wait: Pick<SettlementOptions, 'signal'> & { readonly timeoutMs: number },
  ): Promise<SettlementOutcome> {
    const { detail } = answer;
    if (answer.outcome === 'refused') {
      this.#log.warn({ payment: payment.id, detail }, 'the facilitator refused a settlement');
      await this.#retryWhileAway(() => this.#outcomes.markRefused(payment, answer.reason));
      testPoint('x402 refused');
      this.#metrics.paymentMoved(payment, 'refused');
      return { outcome: 'refused', reason: answer.reason };
    }
    const { transaction } = answer;
    const { claim, headBlock } = payment;
    const needsConfirmation = payment.purpose === 'deposit';
    if (needsConfirmation && transaction) {
      await this.#outcomes.markAwaited(payment, transaction);
      testPoint('deposit awaited');
    }
    const found = await this.#chain.awaitTransfer({ claim, headBlock, transaction, needsConfirmation }, wait);
    testPoint('x402 proved');
    const isProved = found && (found.isConfirmed || !needsConfirmation);
    const booking = isProved ? await this.#resolver.book(payment, found.proof) : undefined;
    testPoint('x402 settled');
    if (booking) return { outcome: 'settled', ...booking };
    return this.#unknown(payment, found?.proof.transaction ?? transaction, detail);
  }

  async #unknown(payment: Payment, transaction: string | undefined, detail: string): Promise<SettlementOutcome> {
    this.#log.warn(
      { payment: payment.id, transaction, detail },
      'a settlement has an unknown end; the chain will tell',
    );
    await this.#retryWhileAway(() => this.#outcomes.markUnknown(payment, transaction));
    testPoint('x402 unknown');
    this.#metrics.paymentMoved(payment, 'unknown');
    return { outcome: 'unknown', transaction };
  }

  #retryWhileAway<T>(statement: () => Promise<T>): Promise<T> {
    return retryWhileAway(DATABASE_PATIENCE_MS, statement);
  }
}
