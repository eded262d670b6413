import type { FastifyBaseLogger } from 'fastify';
import type { Database } from '../db/database.ts';
import { findWallet } from '../ledger/wallets.ts';
import { testPoint } from '../lib/test-point.ts';
import type { Booking } from '../x402/book-settlement.ts';
import type { Payment } from '../x402/payment.ts';
import type { Reservations } from '../x402/reservations.ts';
import type { Settlement } from '../x402/settlement.ts';
import type { PaymentIntake } from './intake.ts';
import type { KnownPayments } from './known-payments.ts';
import type { PaymentIdentity, PaymentRequest } from './payment-request.ts';
import { type KnownPayment, type PaymentStatus, type Reserved, settlementRefused } from './payment-status.ts';
import { type Refused, refused } from './refusal.ts';

type DepositCode =
  | 'PAYMENT_REQUIRED'
  | 'PAYMENT_IDENTIFIER_CONFLICT'
  | 'PAYMENT_REPLAY_PENDING'
  | 'PAYMENT_OUTCOME_UNKNOWN'
  | 'RATE_LIMITED'
  | 'PAYMENT_ERROR';

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
  | Refused<DepositCode>;

/** The answers to repetitions of deposits. */
export class DepositReplays {
  readonly #db: Database;
  readonly #known: KnownPayments;

  constructor(db: Database, known: KnownPayments) {
    this.#db = db;
    this.#known = known;
  }

  /** The answer to a repetition, or to a misuse of its identifier; undefined when the payment is new. */
  async find(request: PaymentIdentity): Promise<DepositResult | undefined> {
    const known = await this.#known.find(request);
    return known && this.answer(known);
  }

  async answer({ payment, status }: KnownPayment): Promise<DepositResult> {
    switch (status.outcome) {
      case 'settled':
        return credited(this.#db, payment, status);
      case 'open':
        return open(status.transaction ?? undefined);
      case 'refused':
        return status;
    }
  }
}

/**
 * Credits a wallet by one on-chain payment, once the exact transfer is CONFIRMATIONS deep (R35, R44). The order of
 * checks is that of a direct payment (R45), and whatever is not credited by its request is credited by the reconciler.
 */
export class Deposits {
  readonly #db: Database;
  readonly #reservations: Reservations;
  readonly #intake: PaymentIntake;
  readonly #replays: DepositReplays;
  readonly #settlement: Settlement;
  readonly #confirmationTimeoutMs: number;
  readonly #log: FastifyBaseLogger;
  readonly #stopping = new AbortController();

  constructor(parts: {
    db: Database;
    reservations: Reservations;
    intake: PaymentIntake;
    replays: DepositReplays;
    settlement: Settlement;
    confirmationTimeoutMs: number;
    log: FastifyBaseLogger;
  }) {
    this.#db = parts.db;
    this.#reservations = parts.reservations;
    this.#intake = parts.intake;
    this.#replays = parts.replays;
    this.#settlement = parts.settlement;
    this.#confirmationTimeoutMs = parts.confirmationTimeoutMs;
    this.#log = parts.log;
  }

  /** @param onAdmitted the payment is known from before, or is about to be settled: nothing more is to be verified */
  async deposit(request: PaymentRequest, onAdmitted: () => void): Promise<DepositResult> {
    const begun = await this.#intake.begin('deposit', request);
    switch (begun.outcome) {
      case 'refused':
        return begun;
      case 'known':
        if (!isConflict(begun.status)) onAdmitted();
        return this.#replays.answer(begun);
      case 'reserved':
        testPoint('deposit reserved');
        return this.#settle(begun, onAdmitted);
    }
  }

  /** Ends every wait for confirmations: its request is answered, and the reconciler goes on. */
  stop(): void {
    this.#stopping.abort();
  }

  async #settle(reserved: Reserved, onAdmitted: () => void): Promise<DepositResult> {
    const { payment, verifiable } = reserved;
    const endLease = this.#reservations.keepLease(payment);
    try {
      const refusal = await this.#intake.admit(reserved);
      if (refusal) return refusal;
      onAdmitted();
      const wait = { timeoutMs: this.#confirmationTimeoutMs, signal: this.#stopping.signal };
      const settled = await this.#settlement.settle(payment, verifiable, wait);
      switch (settled.outcome) {
        case 'settled':
          return await credited(this.#db, payment, settled).catch((err) => {
            this.#log.error({ err, payment: payment.id }, 'the balance of a deposit could not be read');
            return refused('PAYMENT_OUTCOME_UNKNOWN', 'outcome_unknown');
          });
        case 'refused':
          return settlementRefused(payment, settled.reason);
        case 'unknown':
          return open(settled.transaction);
        case 'lost':
          return refused('PAYMENT_REPLAY_PENDING', 'taken_over');
      }
    } finally {
      endLease();
    }
  }
}

async function credited(db: Database, { claim }: Payment, { receipt, isNew }: Booking): Promise<DepositResult> {
  const balanceMicroUsd = (await findWallet(db, claim.payer)) ?? 0n;
  const creditedMicroUsd = isNew ? claim.amount : 0n;
  return { outcome: 'credited', receipt, address: claim.payer, balanceMicroUsd, creditedMicroUsd };
}

/** The identifier belongs to another request. */
const isConflict = (status: PaymentStatus): boolean =>
  status.outcome === 'refused' && status.code === 'PAYMENT_IDENTIFIER_CONFLICT';

/** @param transaction whose confirmations are waited for, where one is known */
const open = (transaction: string | undefined) =>
  transaction === undefined
    ? refused('PAYMENT_OUTCOME_UNKNOWN', 'outcome_unknown')
    : refused('PAYMENT_REPLAY_PENDING', 'not_confirmed_yet', { transaction });
