import type { PaymentOutcome } from '../contract/types.ts';
import type { Refused } from './refusal.ts';

/** Nothing was taken for the payment, by this request or by an identical one before. */
export const NOTHING_CHARGED: PaymentOutcome = { state: 'not_charged', amountMicroUsd: 0 };

/** It was taken. @param transaction on the chain, where there is one */
export const chargedPayment = (amountMicroUsd: bigint, transaction?: string): PaymentOutcome => ({
  state: 'charged',
  amountMicroUsd: Number(amountMicroUsd),
  ...(transaction !== undefined && { transaction }),
});

/** It may have been taken. @param amountMicroUsd at most */
export const unknownPayment = (amountMicroUsd: bigint, transaction?: string): PaymentOutcome => ({
  state: 'unknown',
  amountMicroUsd: Number(amountMicroUsd),
  ...(transaction !== undefined && { transaction }),
});

const UNKNOWN_CODES: ReadonlySet<string> = new Set(['PAYMENT_REPLAY_PENDING', 'PAYMENT_OUTCOME_UNKNOWN']);

/** What happened to the money of a payment that was refused after the look-up of its identifier or nonce (R64). */
export function outcomeOf({ code, payment, transaction }: Refused, amountMicroUsd: bigint): PaymentOutcome {
  if (payment) return payment;
  return UNKNOWN_CODES.has(code) ? unknownPayment(amountMicroUsd, transaction) : NOTHING_CHARGED;
}
