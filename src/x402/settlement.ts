import type { FastifyBaseLogger } from 'fastify';
import { isUnavailable } from '../db/database-errors.ts';
import { retryWhileAway } from '../db/retry-while-away.ts';
import type { SpokenBy } from '../ledger/paid-for.ts';
import { testPoint } from '../lib/test-point.ts';
import type { Metrics } from '../observability/metrics.ts';
import type { Booking } from './book-settlement.ts';
import type { Chain, TransferClaim, TransferProof } from './chain.ts';
import type { Hex } from './envelope.ts';
import type { Facilitator, FacilitatorPayment, SettleAnswer } from './facilitator.ts';
import type { Payment } from './payment.ts';
import type { PaymentOutcomes } from './payment-outcomes.ts';
import type { Reservations } from './reservations.ts';
import { DATABASE_PATIENCE_MS, type Resolver } from './resolver.ts';

/** How a settlement ended, or that only the chain can tell. */
export type SettlementOutcome =
  | ({ readonly outcome: 'settled' } & Booking)
  | { readonly outcome: 'refused'; readonly reason: string }
  | { readonly outcome: 'unknown' }
  /** The reservation was taken over; no settle was sent. */
  | { readonly outcome: 'lost' };

/** How long a facilitator's success is held against the chain: our node may be behind the facilitator's. */
const PROOF_PATIENCE_MS = 5_000;

/** Waits for what counts as proof of the transfer; undefined when there is none in time. */
export type AwaitProof = (claim: TransferClaim, transaction: Hex) => Promise<TransferProof | undefined>;

/**
 * Turns a reserved payment into a settled one, at most once:
 *
 *     reserved -- recorded --> settling -- one settle is sent -->
 *       success, and the chain proves it               -> settled
 *       no transaction, for a reason that excludes one -> refused, the chain is watched
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
   * @param awaitProof inclusion in a block is proof unless something else is asked for
   */
  async settle(
    payment: Payment,
    request: FacilitatorPayment,
    { upstream, awaitProof = this.#included }: { upstream?: SpokenBy | undefined; awaitProof?: AwaitProof },
  ): Promise<SettlementOutcome> {
    testPoint('x402 audio stored');
    if (!(await this.#retryWhileAway(() => this.#reservations.beginSettling(payment, upstream))))
      return { outcome: 'lost' };
    testPoint('x402 settling');
    try {
      const answer = await this.#facilitator.settle(request);
      testPoint('x402 settle answered');
      return await this.#record(payment, answer, awaitProof);
    } catch (error) {
      // Whatever it is, the money may have moved (R62).
      this.#log.error({ err: error, payment: payment.id }, 'the end of a settlement could not be recorded');
      // While the database is away, the payment becomes one in doubt when its lease ends.
      if (!isUnavailable(error)) await this.#outcomes.markUnknown(payment).catch(() => {});
      this.#metrics.paymentMoved(payment, 'unknown');
      return { outcome: 'unknown' };
    }
  }

  readonly #included: AwaitProof = (claim, transaction) =>
    this.#chain.awaitProof(claim, transaction, PROOF_PATIENCE_MS);

  async #record(payment: Payment, answer: SettleAnswer, awaitProof: AwaitProof): Promise<SettlementOutcome> {
    switch (answer.outcome) {
      case 'success': {
        const proof = await awaitProof(payment.claim, answer.transaction);
        testPoint('x402 proved');
        const booking = proof && (await this.#resolver.book(payment, proof));
        testPoint('x402 settled');
        if (booking) return { outcome: 'settled', ...booking };
        return this.#unknown(payment, 'the chain does not show the named transaction in time');
      }
      case 'refused':
        await this.#retryWhileAway(() => this.#outcomes.markRefused(payment, answer.reason));
        testPoint('x402 refused');
        this.#metrics.paymentMoved(payment, 'refused');
        return { outcome: 'refused', reason: answer.reason };
      case 'unknown':
        return this.#unknown(payment, answer.cause);
    }
  }

  async #unknown(payment: Payment, cause: string): Promise<SettlementOutcome> {
    this.#log.warn({ payment: payment.id, cause }, 'a settlement has an unknown end; the chain will tell');
    await this.#retryWhileAway(() => this.#outcomes.markUnknown(payment));
    testPoint('x402 unknown');
    this.#metrics.paymentMoved(payment, 'unknown');
    return { outcome: 'unknown' };
  }

  #retryWhileAway<T>(statement: () => Promise<T>): Promise<T> {
    return retryWhileAway(DATABASE_PATIENCE_MS, statement);
  }
}
