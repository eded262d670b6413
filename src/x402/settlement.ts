import type { FastifyBaseLogger } from 'fastify';
import { getAddress } from 'viem';
import type { Database } from '../db/database.ts';
import { persistently } from '../db/patience.ts';
import { bookSettlement } from '../ledger/book-settlement.ts';
import { testPoint } from '../test-point.ts';
import type { Chain, TransferProof } from './chain.ts';
import { encodeHeader } from './challenge.ts';
import type { Facilitator, FacilitatorPayment } from './facilitator.ts';
import type { Asset } from './network.ts';
import type { Payment, Payments } from './payment.ts';
import { RpcError } from './rpc.ts';

/** How a settlement ended, or that only the chain can tell. */
export type SettlementOutcome =
  | { readonly outcome: 'settled'; readonly receipt: string }
  | { readonly outcome: 'refused'; readonly reason: string }
  | { readonly outcome: 'unknown' }
  /** The reservation was taken over; no settle was sent. */
  | { readonly outcome: 'lost' };

/** What the chain told about a payment in doubt; `open` when it can't tell yet. */
export type Resolution =
  | { readonly outcome: 'settled'; readonly receipt: string }
  | { readonly outcome: 'failed' }
  | { readonly outcome: 'open' };

/** How long a facilitator's success is held against the chain: our node may be behind the facilitator's. */
const PROOF_PATIENCE_MS = 5_000;
const DATABASE_PATIENCE_MS = 20_000;

/**
 * Turns a reserved payment into a settled one, at most once, and finds out what became of it when that got lost:
 *
 *     reserved -- recorded --> settling -- one settle is sent -->
 *       success, and the chain proves it            -> settled
 *       no transaction, for a reason that excludes one -> refused, the chain is watched
 *       anything else                               -> unknown, the chain tells
 *
 * After `settling` nothing is sent again, by any process, ever.
 */
export class Settlement {
  readonly #db: Database;
  readonly #payments: Payments;
  readonly #facilitator: Facilitator;
  readonly #chain: Chain;
  readonly #asset: Asset;
  readonly #log: FastifyBaseLogger;

  constructor(parts: {
    db: Database;
    payments: Payments;
    facilitator: Facilitator;
    chain: Chain;
    asset: Asset;
    log: FastifyBaseLogger;
  }) {
    this.#db = parts.db;
    this.#payments = parts.payments;
    this.#facilitator = parts.facilitator;
    this.#chain = parts.chain;
    this.#asset = parts.asset;
    this.#log = parts.log;
  }

  /** Settles a reserved payment. Throws only when the database is away; then the chain tells the rest. */
  async settle(payment: Payment, request: FacilitatorPayment): Promise<SettlementOutcome> {
    testPoint('x402 audio stored');
    if (!(await this.#persistently(() => this.#payments.beginSettling(payment)))) return { outcome: 'lost' };
    testPoint('x402 settling');
    const answer = await this.#facilitator.settle(request);
    testPoint('x402 settle answered');
    switch (answer.outcome) {
      case 'success': {
        const proof = await this.#chain.awaitProof(payment.claim, answer.transaction, PROOF_PATIENCE_MS);
        const receipt = proof && (await this.#book(payment, proof));
        testPoint('x402 settled');
        if (receipt !== undefined) return { outcome: 'settled', receipt };
        return this.#unknown(payment, 'the chain does not show the transaction that the facilitator named');
      }
      case 'refused':
        await this.#persistently(() => this.#payments.markRefused(payment, answer.reason));
        return { outcome: 'refused', reason: answer.reason };
      case 'unknown':
        return this.#unknown(payment, answer.cause);
    }
  }

  /** Asks the chain about a payment whose end is in doubt, and records what it tells. */
  async resolve(payment: Payment): Promise<Resolution> {
    const claimed = await this.#payments.claimCheck(payment);
    return claimed ? this.resolveClaimed(claimed) : { outcome: 'open' };
  }

  /** Likewise, for a payment whose turn has been claimed. */
  async resolveClaimed(payment: Payment): Promise<Resolution> {
    let finding: Awaited<ReturnType<Chain['find']>>;
    try {
      finding = await this.#chain.find(payment.claim, payment.headBlock);
    } catch (error) {
      if (!(error instanceof RpcError)) throw error;
      this.#log.warn({ err: error, payment: payment.id }, 'the chain could not be asked about a payment');
      return { outcome: 'open' };
    }
    switch (finding.outcome) {
      case 'paid': {
        const receipt = await this.#book(payment, finding.proof);
        return receipt === undefined ? { outcome: 'open' } : { outcome: 'settled', receipt };
      }
      case 'unused':
        await this.#payments.markFailed(payment);
        return { outcome: 'failed' };
      case 'open':
        return { outcome: 'open' };
    }
  }

  async #unknown(payment: Payment, cause: string): Promise<SettlementOutcome> {
    this.#log.warn({ payment: payment.id, cause }, 'a settlement has an unknown end; the chain will tell');
    await this.#persistently(() => this.#payments.markUnknown(payment));
    return { outcome: 'unknown' };
  }

  #book(payment: Payment, proof: TransferProof): Promise<string | undefined> {
    const receipt = encodeHeader({
      success: true,
      transaction: proof.transaction,
      network: this.#asset.network,
      payer: getAddress(payment.claim.payer),
    });
    return this.#persistently(() => bookSettlement(this.#db, payment.id, proof, receipt));
  }

  #persistently<T>(statement: () => Promise<T>): Promise<T> {
    return persistently(DATABASE_PATIENCE_MS, statement);
  }
}
