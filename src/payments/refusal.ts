import type { WorkRefusal } from '../limits/unpaid-work.ts';
import { REPLAY_WINDOW_SECONDS } from '../x402/payment.ts';

export type PaymentRefusalCode =
  | 'PAYMENT_REQUIRED'
  | 'PAYMENT_IDENTIFIER_CONFLICT'
  | 'PAYMENT_REPLAY_PENDING'
  | 'PAYMENT_OUTCOME_UNKNOWN'
  | 'PAYMENT_ERROR'
  | 'REPLAY_CACHE_UNAVAILABLE'
  | 'RATE_LIMITED'
  | 'TTS_UNAVAILABLE';

/** Why a payment on the chain buys nothing now. */
export interface PaymentRefusal<Code extends PaymentRefusalCode = PaymentRefusalCode> {
  readonly code: Code;
  /** For programs, such as insufficient_funds. */
  readonly reason: string;
  readonly message: string;
}

export interface Refused<Code extends PaymentRefusalCode = PaymentRefusalCode> {
  readonly outcome: 'refused';
  readonly refusal: PaymentRefusal<Code>;
}

const MESSAGES: Record<PaymentRefusalCode, string> = {
  PAYMENT_REQUIRED: 'The payment is refused. Sign the challenge in PAYMENT-REQUIRED and send it with a new identifier.',
  PAYMENT_IDENTIFIER_CONFLICT:
    'This payment identifier or authorization belongs to another request. Make a new payment.',
  PAYMENT_REPLAY_PENDING: 'The first request with this payment is still running. Repeat the identical request later.',
  PAYMENT_OUTCOME_UNKNOWN:
    'Whether this payment was settled is not known yet. Repeat the identical request later; make no new payment ' +
    "without the user's approval.",
  PAYMENT_ERROR: 'The payment could not be verified now. Nothing was settled; repeat the identical request.',
  REPLAY_CACHE_UNAVAILABLE: 'The audio can not be stored or read now. Nothing was settled by this request; repeat it.',
  RATE_LIMITED: 'A settlement of this payer failed lately: one request at a time. Repeat it once the other has ended.',
  TTS_UNAVAILABLE:
    'Too much speech was lost to settlements that failed. Nothing was settled; repeat the request later.',
};

/** What is told to whose unpaid work leaves no room for more now. */
export const WORK_MESSAGES: Record<WorkRefusal, string> = {
  too_many_at_once: 'Too many of your requests are being spoken. Nothing was charged; repeat it once some have ended.',
  one_at_a_time_while_unpaid:
    'Much of what was spoken for you lately failed and was not paid: one request at a time, until some succeed or an ' +
    'hour has passed. Nothing was charged; repeat it once the other has ended.',
};

/** What is told for a reason that the code's message does not fit. */
const SPECIAL: Record<string, string> = {
  ...WORK_MESSAGES,
  invalid_signature:
    "The payment is refused: its signature is not the one of its payer's key, and the payer is no contract. Sign the " +
    'challenge in PAYMENT-REQUIRED with the key of authorization.from, and send it with a new identifier.',
  replay_window_over: `This payment was used, and its replay window of ${REPLAY_WINDOW_SECONDS} seconds is over.`,
  not_confirmed_yet: 'The transfer is not confirmed yet. It is credited without you; repeat the request to see it.',
};

export const refused = <Code extends PaymentRefusalCode>(code: Code, reason: string): Refused<Code> => ({
  outcome: 'refused',
  refusal: { code, reason, message: SPECIAL[reason] ?? MESSAGES[code] },
});
