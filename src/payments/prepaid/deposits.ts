import type { Database } from '../../db/database.ts';
import { findWallet } from '../../ledger/accounts.ts';
import { testPoint } from '../../lib/test-point.ts';
import { type Refused, refused } from '../refusal.ts';
import type { Booking } from '../x402/book-settlement.ts';
import type { Payment } from '../x402/payment.ts';
import { type PaymentIntake, TAKEN_OVER } from '../x402/payment-intake.ts';
import {
  type KnownPayment,
  type PaymentIdentity,
  type PaymentLookup,
  type PaymentRequest,
  type PaymentStatus,
  type Reserved,
  settlementRefused,
} from '../x402/payment-lookup.ts';
import type { Reservations } from '../x402/reservations.ts';
import type { Settlement } from '../x402/settlement.ts';
import { FACILITATOR_LACKS_GAS } from '../x402/solvency.ts';

export type DepositResult =
  | {
      readonly outcome: 'credited';
      readonly receipt: string;
      readonly address: string;
      readonly balanceMicroUsd: bigint;
      /** 0 if an earlier request or the reconciler has credited the payment. */
      readonly creditedMicroUsd: bigint;
    }
  | Refused<
      | 'PAYMENT_REQUIRED'
      | 'PAYMENT_IDENTIFIER_CONFLICT'
      | 'PAYMENT_REPLAY_PENDING'
      | 'PAYMENT_OUTCOME_UNKNOWN'
      | 'RATE_LIMITED'
      | 'PAYMENT_ERROR'
    >;

export class DepositReplays {
  readonly #db: Database;
  readonly #lookup: PaymentLookup;

  constructor(db: Database, lookup: PaymentLookup) {
    this.#db = db;
    this.#lookup = lookup;
  }

  async find(request: PaymentIdentity): Promise<DepositResult | undefined> {
    const known = await this.#lookup.find(request);
    return known ? this.answer(known) : this.#lookup.refuseUsed(request);
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

interface DepositsParts {
  readonly db: Database;
  readonly reservations: Reservations;
  readonly intake: PaymentIntake;
  readonly replays: DepositReplays;
  readonly settlement: Settlement;
  readonly confirmationTimeoutMs: number;
}

/**
 * Credits a wallet by one on-chain payment (R35, R71), in these steps:
 *
 *     begin    identifier and authorization are reserved (PaymentIntake)
 *     admit    verified, and the payer is solvent; otherwise released
 *     settle   sent once; credited when the exact transfer has 2 confirmations (R44); 409 after 120 s
 *
 * The reconciler credits a payment that is confirmed later. A payment is credited once.
 */
export class Deposits {
  readonly #parts: DepositsParts;
  readonly #stopping = new AbortController();

  constructor(parts: DepositsParts) {
    this.#parts = parts;
  }

  /** @param onAdmitted called after all verification; until then the attempt may still count as failed */
  async deposit(request: PaymentRequest, onAdmitted: () => void): Promise<DepositResult> {
    const begun = await this.#parts.intake.begin('deposit', request);
    switch (begun.outcome) {
      case 'refused':
        return begun;
      case 'known':
        if (!isConflict(begun.status)) onAdmitted();
        return this.#parts.replays.answer(begun);
      case 'reserved':
        testPoint('deposit reserved');
        return this.#settle(begun, onAdmitted);
    }
  }

  stop(): void {
    this.#stopping.abort();
  }

  async #settle(reserved: Reserved, onAdmitted: () => void): Promise<DepositResult> {
    const { payment, log } = reserved;
    const { db, reservations, intake, settlement, confirmationTimeoutMs } = this.#parts;
    const endLease = reservations.keepLease(payment);
    try {
      const admitted = await intake.admit(reserved);
      if (admitted.outcome === 'admitted' || admitted.reason === FACILITATOR_LACKS_GAS) onAdmitted();
      if (admitted.outcome === 'refused') return admitted;
      const wait = { timeoutMs: confirmationTimeoutMs, signal: this.#stopping.signal };
      const settled = await settlement.settle(admitted, wait);
      switch (settled.outcome) {
        case 'settled':
          return await credited(db, payment, settled).catch((err) => {
            log.error(
              { err, payment: payment.id },
              'a deposit was credited, but reading the balance failed, so its caller gets 409 and can repeat the request. No action is needed',
            );
            return refused('PAYMENT_OUTCOME_UNKNOWN', 'outcome_unknown');
          });
        case 'refused':
          return settlementRefused(payment, settled.reason);
        case 'unknown':
          return open(settled.transaction);
        case 'lost':
          return TAKEN_OVER;
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

const isConflict = (status: PaymentStatus): boolean =>
  status.outcome === 'refused' && status.code === 'PAYMENT_IDENTIFIER_CONFLICT';

/** Of a deposit whose outcome is not known yet (R25). */
const open = (transaction: string | undefined) =>
  transaction === undefined
    ? refused('PAYMENT_OUTCOME_UNKNOWN', 'outcome_unknown')
    : refused('PAYMENT_REPLAY_PENDING', 'not_confirmed_yet', { transaction });
