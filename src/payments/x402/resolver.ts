import type { FastifyBaseLogger } from 'fastify';
import type { Asset } from '../../config/network.ts';
import type { NodeUrls } from '../../config/x402-settings.ts';
import type { Database } from '../../db/database.ts';
import { retryOnDbUnavailable } from '../../db/database-errors.ts';
import { GroupedStatement } from '../../db/hot-statements.ts';
import { testPoint } from '../../lib/test-point.ts';
import type { Metrics } from '../../observability/metrics.ts';
import { type Booking, bookSettlements, paymentReceipt, type SettledPayment } from './book-settlement.ts';
import { Chain, type TransferProof } from './chain.ts';
import type { Payment } from './payment.ts';
import { PaymentStates } from './payment-states.ts';
import { Reservations } from './reservations.ts';

export type Resolution =
  | ({ readonly outcome: 'settled' } & Booking)
  | { readonly outcome: 'failed' }
  | { readonly outcome: 'open'; readonly transaction?: string };

export const DATABASE_TIMEOUT_MS = 20_000;

interface ResolverParts {
  readonly db: Database;
  readonly states: PaymentStates;
  readonly chain: Chain;
  readonly asset: Asset;
  readonly metrics: Metrics | undefined;
}

/** Records what the chain shows about payments in doubt (R23, R25, R35, R44). @throws RpcError if it shows nothing */
export class Resolver {
  readonly #parts: ResolverParts;
  /** Deposits of one payer never share a statement, because each changes the wallet. */
  readonly #bookings: GroupedStatement<SettledPayment & { depositor: string | undefined }, Booking | undefined>;

  constructor(parts: ResolverParts) {
    this.#parts = parts;
    this.#bookings = new GroupedStatement({
      run: (settled) => bookSettlements(parts.db, settled),
      keyOf: ({ id, depositor }) => depositor ?? id,
    });
  }

  async resolve(payment: Payment): Promise<Resolution> {
    const claimed = await this.#parts.states.claimCheck(payment);
    return claimed ? this.resolveClaimed(claimed) : { outcome: 'open' };
  }

  async resolveClaimed(payment: Payment): Promise<Resolution> {
    const finding = await this.#find(payment);
    testPoint('doubtful payment found');
    if (finding.outcome === 'open') return finding;
    if (finding.outcome === 'unused') {
      if (await this.#parts.states.markFailed(payment)) this.#parts.metrics?.paymentMoved(payment, 'failed');
      return { outcome: 'failed' };
    }
    if (payment.purpose === 'deposit' && !finding.isConfirmed) {
      const { transaction } = finding.proof;
      if (transaction !== payment.awaitedTransaction) await this.#parts.states.markAwaited(payment, transaction);
      return { outcome: 'open', transaction };
    }
    const booking = await this.book(payment, finding.proof);
    return booking ? { outcome: 'settled', ...booking } : { outcome: 'open' };
  }

  async lookAgain(payment: Payment): Promise<Resolution> {
    const finding = await this.#find(payment);
    testPoint('failed payment found');
    const isPaid = finding.outcome === 'paid' && (payment.purpose === 'speech' || finding.isConfirmed);
    const booking = isPaid && (await this.book(payment, finding.proof));
    if (booking) return { outcome: 'settled', ...booking };
    if (finding.outcome !== 'unused') return { outcome: 'open' };
    await this.#parts.states.endLooking(payment);
    return { outcome: 'failed' };
  }

  #find({ claim, headBlock, awaitedTransaction }: Payment) {
    return this.#parts.chain.find(claim, headBlock, awaitedTransaction);
  }

  async book(payment: Payment, proof: TransferProof): Promise<Booking | undefined> {
    const receipt = paymentReceipt(this.#parts.asset, payment.claim.payer, proof.transaction);
    const depositor = payment.purpose === 'deposit' ? payment.claim.payer : undefined;
    const settled = { id: payment.id, proof, receipt, depositor };
    const booking = await retryOnDbUnavailable(DATABASE_TIMEOUT_MS, () => this.#bookings.execute(settled));
    if (booking?.isNew) this.#parts.metrics?.paymentMoved(payment, 'settled');
    return booking;
  }
}

export interface OpenPayments {
  readonly reservations: Reservations;
  readonly states: PaymentStates;
  readonly chain: Chain;
  readonly resolver: Resolver;
}

export function openPayments(
  db: Database,
  asset: Asset,
  rpcUrls: NodeUrls,
  { metrics, log }: { readonly metrics?: Metrics; readonly log?: FastifyBaseLogger } = {},
): OpenPayments {
  const reservations = new Reservations(db, asset);
  const states = new PaymentStates(db, asset);
  const chain = new Chain(rpcUrls, asset, log, metrics?.outside('node'));
  return { reservations, states, chain, resolver: new Resolver({ db, states, chain, asset, metrics }) };
}
