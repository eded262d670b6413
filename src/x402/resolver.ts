import type { Database } from '../db/database.ts';
import { GroupedStatement } from '../db/grouped-statement.ts';
import { retryWhileAway } from '../db/retry-while-away.ts';
import { testPoint } from '../lib/test-point.ts';
import type { Metrics } from '../observability/metrics.ts';
import { type Booking, bookSettlements, paymentReceipt, type SettledPayment } from './book-settlement.ts';
import type { Chain, TransferProof } from './chain.ts';
import type { Asset } from './network.ts';
import type { Payment } from './payment.ts';
import type { PaymentOutcomes } from './payment-outcomes.ts';

/** What the chain told about a payment in doubt; `open` when it can't tell yet. */
export type Resolution =
  | ({ readonly outcome: 'settled' } & Booking)
  | { readonly outcome: 'failed' }
  /** `transaction` where the transfer is, but not 2 blocks deep yet. */
  | { readonly outcome: 'open'; readonly transaction?: string };

/** How long a step of a settlement is tried while the database is away. */
export const DATABASE_PATIENCE_MS = 20_000;

/**
 * Records what the chain (chain.ts) tells about payments (R23, R25, R44), for whoever is in doubt: the payment's own
 * request and its repetitions (payments/intake.ts), later the reconcilers (reconcile/doubtful-payments.ts and
 * reconcile/failed-payments.ts). Its methods throw RpcError when the chain tells nothing.
 */
export class Resolver {
  readonly #outcomes: PaymentOutcomes;
  readonly #chain: Chain;
  readonly #asset: Asset;
  readonly #metrics: Metrics | undefined;
  readonly #bookings: GroupedStatement<
    SettledPayment & { readonly depositor?: string | undefined },
    Booking | undefined
  >;

  constructor(parts: {
    db: Database;
    outcomes: PaymentOutcomes;
    chain: Chain;
    asset: Asset;
    metrics: Metrics | undefined;
  }) {
    this.#bookings = new GroupedStatement({
      run: (settled) => bookSettlements(parts.db, settled),
      keyOf: ({ id, depositor }) => depositor ?? id,
    });
    this.#outcomes = parts.outcomes;
    this.#chain = parts.chain;
    this.#asset = parts.asset;
    this.#metrics = parts.metrics;
  }

  /** Asks the chain about a payment whose end is in doubt; `open` also when it was asked a moment ago. */
  async resolve(payment: Payment): Promise<Resolution> {
    const claimed = await this.#outcomes.claimCheck(payment);
    return claimed ? this.resolveClaimed(claimed) : { outcome: 'open' };
  }

  /** Likewise, for a payment whose turn has been claimed. */
  async resolveClaimed(payment: Payment): Promise<Resolution> {
    const finding = await this.#chain.find(payment.claim, payment.headBlock);
    testPoint('doubtful payment found');
    switch (finding.outcome) {
      case 'paid': {
        if (payment.purpose === 'deposit' && !finding.isConfirmed) {
          const { transaction } = finding.proof;
          if (transaction !== payment.awaitedTransaction) await this.#outcomes.markAwaited(payment, transaction);
          return { outcome: 'open', transaction };
        }
        const booking = await this.book(payment, finding.proof);
        return booking ? { outcome: 'settled', ...booking } : { outcome: 'open' };
      }
      case 'unused':
        if (await this.#outcomes.markFailed(payment)) this.#metrics?.paymentMoved(payment, 'failed');
        return { outcome: 'failed' };
      case 'open':
        return { outcome: 'open' };
    }
  }

  /** Looks once more for a payment that has failed, and whose turn has been claimed. */
  async lookAgain(payment: Payment): Promise<Resolution> {
    const finding = await this.#chain.find(payment.claim, payment.headBlock);
    testPoint('failed payment found');
    const isPaid = finding.outcome === 'paid' && (payment.purpose === 'speech' || finding.isConfirmed);
    const booking = isPaid && (await this.book(payment, finding.proof));
    if (booking) return { outcome: 'settled', ...booking };
    if (finding.outcome !== 'unused') return { outcome: 'open' };
    await this.#outcomes.endLooking(payment);
    return { outcome: 'failed' };
  }

  /** Books a proven payment; undefined when it can't be settled any more. */
  async book(payment: Payment, proof: TransferProof): Promise<Booking | undefined> {
    const receipt = paymentReceipt(this.#asset, payment.claim.payer, proof.transaction);
    const depositor = payment.purpose === 'deposit' ? payment.claim.payer : undefined;
    const settled = { id: payment.id, proof, receipt, depositor };
    const booking = await retryWhileAway(DATABASE_PATIENCE_MS, () => this.#bookings.execute(settled));
    if (booking?.isNew) this.#metrics?.paymentMoved(payment, 'settled');
    return booking;
  }
}
