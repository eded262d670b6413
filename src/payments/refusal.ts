import type { PaymentOutcome } from '../contract/types.ts';
import type { SpendState } from '../ledger/wallet-holds.ts';

/** Response headers that tell what was charged. */
export type Receipt = Readonly<Record<string, string | bigint | boolean>>;

export type RefusalCode =
  | 'INVALID_REQUEST'
  | 'INVALID_PAYMENT_PAYLOAD'
  | 'UNAUTHORIZED'
  | 'PAYMENT_REQUIRED'
  | 'PAYMENT_IDENTIFIER_CONFLICT'
  | 'PAYMENT_REPLAY_PENDING'
  | 'PAYMENT_OUTCOME_UNKNOWN'
  | 'PREPAID_NONCE_REPLAYED'
  | 'RATE_LIMITED'
  | 'PAYMENT_ERROR'
  | 'REPLAY_CACHE_UNAVAILABLE'
  | 'TTS_UNAVAILABLE';

export interface NonceReplay {
  readonly state: SpendState;
  readonly payment: PaymentOutcome;
  readonly holdId: string;
}

export interface Refused<Code extends RefusalCode = RefusalCode> {
  readonly outcome: 'refused';
  readonly code: Code;
  readonly reason: string;
  readonly fault?: { readonly field: string; readonly rule: string; readonly message: string };
  /** The result for the credential, if known: limits count failed ones (R48). */
  readonly credential?: 'verified' | 'failed';
  readonly balanceMicroUsd?: bigint;
  /** What the payer owes and must pay before anything is sold again (R61). */
  readonly debtMicroUsd?: bigint;
  readonly receipt?: Receipt | undefined;
  readonly payment?: PaymentOutcome;
  /** The outcome of the identical earlier request. Its audio is stored under the hold's id. */
  readonly replay?: NonceReplay;
  readonly transaction?: string;
  /** Why the facilitator refuses such payments, whoever signs them. */
  readonly facilitatorReason?: string;
  /** Something was held, or may have been, and certainly nothing was charged. */
  readonly isUncharged?: true;
  /** To be asked before this refusal is answered: an expiry out of range, by the database's clock, comes first (R30). */
  expiryFirst?(): Promise<Refused<Code>>;
}

export const refused = <Code extends RefusalCode>(
  code: Code,
  reason: string,
  more: Omit<Refused<Code>, 'outcome' | 'code' | 'reason'> = {},
): Refused<Code> => ({ outcome: 'refused', code, reason, ...more });

export const NOTHING_CHARGED: PaymentOutcome = { state: 'not_charged', amountMicroUsd: 0 };

const paymentOf =
  (state: 'charged' | 'unknown') =>
  (amountMicroUsd: bigint, transaction?: string): PaymentOutcome => ({
    state,
    amountMicroUsd: Number(amountMicroUsd),
    ...(transaction !== undefined && { transaction }),
  });

export const chargedPayment = paymentOf('charged');
/** At most this amount may have been taken. */
export const unknownPayment = paymentOf('unknown');

const UNKNOWN_CODES: ReadonlySet<string> = new Set(['PAYMENT_REPLAY_PENDING', 'PAYMENT_OUTCOME_UNKNOWN']);

/** What happened to the money of a payment that was refused after the look-up of its identifier or nonce (R64). */
export function paymentAfter({ code, payment, transaction }: Refused, amountMicroUsd: bigint): PaymentOutcome {
  if (payment) return payment;
  return UNKNOWN_CODES.has(code) ? unknownPayment(amountMicroUsd, transaction) : NOTHING_CHARGED;
}
