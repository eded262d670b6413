import type { PaymentPayload, SettleResponse, VerifyResponse } from '@x402/core/types';

/**
 * How a facilitator fails to answer:
 * - `error`: 500 with a JSON error
 * - `garbage`: 200 with HTML
 * - `hang`: nothing until the caller gives up or the facilitator is closed
 * - `reset`: the connection is reset
 * - `redirect`: 307 to another path, which does the work if somebody follows
 */
export type Misbehaviour = 'error' | 'garbage' | 'hang' | 'reset' | 'redirect';

export type VerifyFault = Misbehaviour | VerifyResponse;

export interface SettleFault {
  /** Whether the payment is really settled on the chain before anything is answered. */
  readonly broadcast: boolean;
  /** A function makes the answer, now or later, out of the true one, which is there only after a broadcast. */
  readonly answer: Misbehaviour | ((settled: SettleResponse | undefined) => object | Promise<object>);
  /** Of an answer that is made, instead of 200. */
  readonly status?: number;
}

/** Tells what goes wrong with a call, now or once something else has happened; undefined is an honest answer. */
export interface FaultSource {
  nextVerify(payment: PaymentPayload): VerifyFault | undefined | Promise<VerifyFault | undefined>;
  nextSettle(payment: PaymentPayload): SettleFault | undefined | Promise<SettleFault | undefined>;
}

/** The faults of the next calls, in order. An empty list is an honest facilitator. */
export class FacilitatorFaults implements FaultSource {
  readonly #verify: VerifyFault[] = [];
  readonly #settle: SettleFault[] = [];

  /** Adds faults for the next calls of `/verify`, one each. */
  verify(...faults: VerifyFault[]): void {
    this.#verify.push(...faults);
  }

  /** Adds faults for the next calls of `/settle`, one each. */
  settle(...faults: SettleFault[]): void {
    this.#settle.push(...faults);
  }

  /** Back to honesty. */
  clear(): void {
    this.#verify.length = 0;
    this.#settle.length = 0;
  }

  nextVerify(): VerifyFault | undefined {
    return this.#verify.shift();
  }

  nextSettle(): SettleFault | undefined {
    return this.#settle.shift();
  }
}

/** Says that the payment is invalid. */
export function invalid(invalidReason: string): VerifyFault {
  return { isValid: false, invalidReason };
}

const failed = (settled: SettleResponse | undefined, errorReason: string, transaction: string): SettleResponse => ({
  success: false,
  errorReason,
  transaction,
  network: settled?.network ?? 'eip155:8453',
});

/** Says that nothing was settled and why, which is true. */
export function refused(errorReason: string): SettleFault {
  return { broadcast: false, answer: () => failed(undefined, errorReason, '') };
}

/** Settles, but says that it does not know the end yet, and names the transaction. */
export const settlementPending: SettleFault = {
  broadcast: true,
  answer: (settled) => failed(settled, 'settlement_pending', settled?.transaction ?? ''),
};

/** Settles, and then judges by the nonce that it has just used itself, as a retry after a lost answer does. */
export const nonceAlreadyUsed: SettleFault = {
  broadcast: true,
  answer: (settled) => failed(settled, 'invalid_exact_evm_nonce_already_used', ''),
};

/** Settles, but names a transaction that is not the payment's. */
export function anotherTransaction(transaction: string): SettleFault {
  return {
    broadcast: true,
    answer: (settled) => ({ success: true, network: settled?.network ?? 'eip155:8453', transaction }),
  };
}

/** Says that it settled, but sent nothing. */
export function onlyClaimed(transaction: string): SettleFault {
  return { broadcast: false, answer: () => ({ success: true, network: 'eip155:8453', transaction }) };
}

/** Verifications that fail, with the answer of the service; at each the payment can be sent again. */
export const VERIFY_FAULTS: [name: string, fault: VerifyFault, status: number, code: string][] = [
  ['R23: an invalid payment', invalid('invalid_exact_evm_signature'), 402, 'PAYMENT_REQUIRED'],
  ['R24: status 500', 'error', 502, 'PAYMENT_ERROR'],
  ['R24: HTML', 'garbage', 502, 'PAYMENT_ERROR'],
  ['R24: a reset', 'reset', 502, 'PAYMENT_ERROR'],
  ['R24: a redirect', 'redirect', 502, 'PAYMENT_ERROR'],
  ['R24: another payer', { isValid: true, payer: '0x0000000000000000000000000000000000000001' }, 502, 'PAYMENT_ERROR'],
];

/** Answers of settle that leave the outcome to the chain, which has the payment. */
export const LOST_SETTLES: [name: string, fault: SettleFault][] = [
  ['500', { broadcast: true, answer: 'error' }],
  ['a reset', { broadcast: true, answer: 'reset' }],
  ['HTML', { broadcast: true, answer: 'garbage' }],
  ['a redirect', { broadcast: true, answer: 'redirect' }],
  ['settlement_pending', settlementPending],
  ['nonce_already_used', nonceAlreadyUsed],
  ['202 without a body', { broadcast: true, status: 202, answer: () => ({}) }],
  ['no transaction', { broadcast: true, answer: () => ({ success: true }) }],
  ['the older format', { broadcast: true, answer: (s) => ({ success: true, txHash: s?.transaction }) }],
];
