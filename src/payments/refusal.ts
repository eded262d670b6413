import type { PaymentOutcome } from '../contract/types.ts';
import type { LostAnswer } from '../ledger/lost-answers.ts';
import type { SpendState } from '../ledger/spent-nonce.ts';
import type { Receipt } from './payment-flow.ts';

/** The contract's codes of payments that are refused. */
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

/** Why a payment buys nothing now. */
export interface Refused<Code extends RefusalCode = RefusalCode> {
  readonly outcome: 'refused';
  readonly code: Code;
  /** For programs, such as insufficient_funds. */
  readonly reason: string;
  /** What is wrong with the credential, where the code and the reason don't say it. */
  readonly fault?: { readonly field: string; readonly rule: string; readonly message: string };
  /** What the credential turned out to be, where that was found out: limits count those that fail (R48). */
  readonly credential?: 'verified' | 'failed';
  /** What the payer has. */
  readonly balanceMicroUsd?: bigint;
  /** What the payer owes, and has to pay before anything is sold again (R61). */
  readonly debtMicroUsd?: bigint;
  /** What the payer is told of his money. */
  readonly receipt?: Receipt | undefined;
  /** What happened to the money, where the code alone does not say it (payment-outcome.ts). */
  readonly payment?: PaymentOutcome;
  /** What became of the first one, where the request is identical with one before. */
  readonly repeated?: Repeated;
  /** The transfer whose confirmations are waited for. */
  readonly transaction?: string;
  /** Something was held, or may have been, and it is certain that nothing was charged. */
  readonly isUncharged?: true;
  /** Looks for a reason that goes before this one; it costs a look at the database. */
  explain?(): Promise<Refused<Code>>;
}

/** What one who repeats a signed request is told of the first. */
export interface Repeated {
  readonly state: SpendState;
  readonly payment: PaymentOutcome;
  /** Of an answer that did not arrive. */
  readonly audio: LostAnswer | undefined;
}

/** @param more what else is known of it */
export const refused = <Code extends RefusalCode>(
  code: Code,
  reason: string,
  more: Omit<Refused<Code>, 'outcome' | 'code' | 'reason'> = {},
): Refused<Code> => ({ outcome: 'refused', code, reason, ...more });
