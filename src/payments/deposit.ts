import type { FastifyBaseLogger } from 'fastify';
import type { Database } from '../db/database.ts';
import { findWallet } from '../ledger/wallets.ts';
import { testPoint } from '../test-point.ts';
import type { Chain } from '../x402/chain.ts';
import { FacilitatorError, type FacilitatorPayment } from '../x402/facilitator.ts';
import { findOffer } from '../x402/offer.ts';
import type { Payment, Payments } from '../x402/payment.ts';
import { RpcError } from '../x402/rpc.ts';
import type { Settlement } from '../x402/settlement.ts';
import { type DirectRequest, requestHash } from './direct.ts';
import { claimOf, misfitOf, type PaymentIntake, type PaymentRefusal, refused } from './intake.ts';

/** How long a request waits for the confirmations of its transfer (specification, "Limits"). */
const CONFIRMATION_PATIENCE_MS = 120_000;

export type DepositRequest = Omit<DirectRequest, 'timeoutMs'>;

export type DepositResult =
  | {
      readonly outcome: 'credited';
      readonly receipt: string;
      /** In lower case. */
      readonly address: string;
      readonly balanceMicroUsd: bigint;
      /** 0 when an earlier request, or the reconciler, has credited the payment. */
      readonly creditedMicroUsd: bigint;
    }
  | {
      readonly outcome: 'refused';
      readonly refusal: PaymentRefusal;
      /** The transfer whose confirmations are waited for. */
      readonly transaction?: string;
    };

/**
 * Credits a wallet by one on-chain payment, once the exact transfer is 2 blocks deep (R35, R44). The order of checks is
 * that of a direct payment (R45), and whatever is not credited by its request is credited by the reconciler.
 */
export class Deposits {
  readonly #db: Database;
  readonly #payments: Payments;
  readonly #intake: PaymentIntake;
  readonly #settlement: Settlement;
  readonly #chain: Chain;
  readonly #log: FastifyBaseLogger;
  readonly #patienceMs: number;
  readonly #stopping = new AbortController();

  constructor(parts: {
    db: Database;
    payments: Payments;
    intake: PaymentIntake;
    settlement: Settlement;
    chain: Chain;
    log: FastifyBaseLogger;
    patienceMs?: number;
  }) {
    this.#db = parts.db;
    this.#payments = parts.payments;
    this.#intake = parts.intake;
    this.#settlement = parts.settlement;
    this.#chain = parts.chain;
    this.#log = parts.log;
    this.#patienceMs = parts.patienceMs ?? CONFIRMATION_PATIENCE_MS;
  }

  async deposit(request: DepositRequest): Promise<DepositResult> {
    const hash = requestHash(request);
    const { envelope, offers, resource } = request;
    const { identifier } = envelope;
    const known = await this.#payments.find(identifier);
    const answer = known && (await this.#answerKnown(known, hash));
    if (answer) return answer;

    const offer = findOffer(offers, envelope.accepted);
    const misfit = offer ? misfitOf(envelope, offer) : 'accepted_is_no_offer';
    if (!offer || misfit) return refused('PAYMENT_REQUIRED', misfit ?? '');
    const reservation = { purpose: 'deposit', identifier, requestHash: hash, claim: claimOf(envelope) } as const;
    const reserved = await this.#intake.reserve(reservation, known);
    if (reserved.outcome === 'refused') return reserved;
    if (reserved.outcome === 'taken') {
      return (
        (await this.#answerKnown(reserved.winner, hash)) ?? refused('PAYMENT_REPLAY_PENDING', 'first_request_running')
      );
    }
    testPoint('deposit reserved');
    return this.#settle(reserved.payment, { envelope, offer, resource });
  }

  /** Ends every wait for confirmations: its request is answered, and the reconciler goes on. */
  stop(): void {
    this.#stopping.abort();
  }

  async #settle(payment: Payment, request: FacilitatorPayment): Promise<DepositResult> {
    const endLease = this.#payments.keepLease(payment);
    try {
      const refusal = await this.#intake.check(payment, request);
      if (refusal) {
        await this.#intake.release(payment);
        return refusal;
      }
    } catch (error) {
      endLease();
      await this.#intake.release(payment);
      if (error instanceof FacilitatorError || error instanceof RpcError) {
        this.#log.warn({ err: error }, 'a deposit could not be verified');
        return refused('PAYMENT_ERROR', 'payment_service_failed');
      }
      throw error;
    }
    try {
      const wait = { patienceMs: this.#patienceMs, signal: this.#stopping.signal };
      const settled = await this.#settlement.settle(payment, request, (claim, transaction) =>
        this.#chain.awaitConfirmed(claim, transaction, wait),
      );
      switch (settled.outcome) {
        case 'settled':
          return this.#credited(payment, settled.receipt, payment.claim.amount);
        case 'refused':
          return refused('PAYMENT_REQUIRED', settled.reason);
        case 'unknown':
          return settled.awaited === undefined
            ? refused('PAYMENT_OUTCOME_UNKNOWN', 'outcome_unknown')
            : pending(settled.awaited);
        case 'lost':
          return refused('PAYMENT_REPLAY_PENDING', 'taken_over');
      }
    } finally {
      endLease();
    }
  }

  /** Undefined when the row is an abandoned reservation of the same request, which may be taken over (R26). */
  async #answerKnown(known: Payment, hash: Buffer): Promise<DepositResult | undefined> {
    if (!known.requestHash.equals(hash)) return refused('PAYMENT_IDENTIFIER_CONFLICT', 'identifier_of_another_request');
    switch (known.state) {
      case 'reserved':
        return known.isLeased ? refused('PAYMENT_REPLAY_PENDING', 'first_request_running') : undefined;
      case 'settled':
        return this.#credited(known, known.receipt as string, 0n);
      case 'failed':
        return refused('PAYMENT_REQUIRED', known.refusal ?? 'settlement_failed');
      case 'settling':
        if (known.isLeased) return refused('PAYMENT_REPLAY_PENDING', 'first_request_running');
        break;
    }
    const resolution = await this.#intake.resolve(known);
    if (resolution.outcome === 'settled') return this.#credited(known, resolution.receipt, 0n);
    if (resolution.outcome === 'failed' || known.state === 'refused') {
      return refused('PAYMENT_REQUIRED', known.refusal ?? 'settlement_failed');
    }
    const transaction = resolution.transaction ?? known.awaitedTransaction;
    return transaction === null ? refused('PAYMENT_OUTCOME_UNKNOWN', 'outcome_unknown') : pending(transaction);
  }

  async #credited({ claim }: Payment, receipt: string, creditedMicroUsd: bigint): Promise<DepositResult> {
    const balanceMicroUsd = (await findWallet(this.#db, claim.payer)) ?? 0n;
    return { outcome: 'credited', receipt, address: claim.payer, balanceMicroUsd, creditedMicroUsd };
  }
}

const pending = (transaction: string): DepositResult => ({
  ...refused('PAYMENT_REPLAY_PENDING', 'not_confirmed_yet'),
  transaction,
});
