import { failure } from '../http/structured-error.ts';
import type { RefusalCode, Refused } from '../payments/refusal.ts';
import { REPLAY_WINDOW_SECONDS } from '../x402/payment.ts';
import { PREPAID } from '../x402/prepaid-terms.ts';

/** Seconds until a payer that is held to one request at a time may try again. */
const ONE_AT_A_TIME_RETRY_SECONDS = 5;
/** Seconds until a repetition may learn more of a payment: about as long as a block takes. */
const OPEN_PAYMENT_RETRY_SECONDS = 2;

/** What is told for a code, where nothing more is known. */
const MESSAGES: Readonly<Record<RefusalCode, string>> = {
  INVALID_REQUEST: 'The request is not valid.',
  INVALID_PAYMENT_PAYLOAD: "The payment can't be read.",
  UNAUTHORIZED: 'The credential is not valid for this request.',
  PAYMENT_REQUIRED: 'The payment is refused. Sign the challenge in PAYMENT-REQUIRED and send it with a new identifier.',
  PAYMENT_IDENTIFIER_CONFLICT:
    'This payment identifier or authorization belongs to another request. Make a new payment.',
  PAYMENT_REPLAY_PENDING: 'The first request with this payment is still running. Repeat the identical request later.',
  PAYMENT_OUTCOME_UNKNOWN:
    'Whether this payment was settled is not known yet. Repeat the identical request later; make no new payment ' +
    "without the user's approval.",
  PREPAID_NONCE_REPLAYED:
    'This nonce was spent by another request. A new nonce buys anew: for a request without an answer, repeat exactly that ' +
    'one first, to learn what became of it.',
  RATE_LIMITED: 'Too much is asked at once. Nothing was taken; repeat it once other requests have ended.',
  PAYMENT_ERROR: 'The payment could not be verified now. Nothing was settled; repeat the identical request.',
  REPLAY_CACHE_UNAVAILABLE: 'The audio can not be stored or read now. Nothing was settled by this request; repeat it.',
  TTS_UNAVAILABLE: 'The text can not be spoken now. Nothing was taken; repeat the request later.',
};

/** What is told of a balance that is smaller than the price. */
export const BALANCE_TOO_SMALL = {
  card: "The account's balance is too small for this request. Add credit at topUpUrl.",
  prepaid: 'The prepaid balance is smaller than the price. Deposit more.',
} as const;

interface Telling {
  readonly message: string;
  /** In the place of the reason. */
  readonly details?: Readonly<Record<string, string | number | boolean>>;
}

/** What is told for a reason that the code's message does not fit. */
const REASONS: Readonly<Record<string, Telling>> = {
  // Card credits.
  no_account: { message: 'Send the id of a credit account in x-credit-account. Buy credit at topUpUrl.' },
  unknown_account: { message: 'The account in x-credit-account does not exist. Buy credit at topUpUrl.' },
  account_frozen: { message: 'The operator of this service lets nothing be spent from this account now. Ask there.' },
  account_indebted: {
    message:
      'A refund or dispute took back more than was left in this account. The next purchase at topUpUrl pays that.',
  },
  idempotency_key_reused: {
    message: 'idempotency-key was used for another request. Use a new one.',
    details: { field: 'idempotency-key', rule: 'same request' },
  },
  // Prepaid balances.
  never_deposited: { message: 'This address has no prepaid balance. Deposit first.' },
  signature: {
    message: 'The signature was not made by x-x402-account for this request. GET /docs explains what is signed.',
    details: { field: 'x-x402-signature', rule: 'eip712' },
  },
  expiry: {
    message: `x-x402-expiry is past, or more than ${PREPAID.signatureTtlSeconds} seconds ahead. Sign the request again.`,
    details: { field: 'x-x402-expiry', rule: 'lifetime', maximumSeconds: PREPAID.signatureTtlSeconds },
  },
  nonce_spent: {
    message: MESSAGES.PREPAID_NONCE_REPLAYED,
    details: { field: 'x-x402-nonce', rule: 'unique' },
  },
  // Payments on the chain.
  invalid_signature: {
    message:
      "The payment is refused: its signature is not the one of its payer's key, and the payer is no contract. Sign the " +
      'challenge in PAYMENT-REQUIRED with the key of authorization.from, and send it with a new identifier.',
  },
  paid_by_another_request: {
    message:
      'Another request was paid with this payment identifier or authorization. Repeat that request to get its answer, or ' +
      'make a new payment for this one.',
  },
  replay_window_over: {
    message: `This payment was used, and its replay window of ${REPLAY_WINDOW_SECONDS} seconds is over.`,
  },
  one_at_a_time_after_failure: {
    message: 'A settlement of this payer failed lately: one request at a time. Repeat it once the other has ended.',
  },
  too_many_unsettled: {
    message: 'Too much speech was lost to settlements that failed. Nothing was settled; repeat the request later.',
  },
  not_confirmed_yet: {
    message: 'The transfer is not confirmed yet. It is credited without you; repeat the request to see it.',
  },
  // Every flow.
  over_max_amount: {
    message: 'The price is above the maximum that the request allows. Send a higher maximum, or a shorter text.',
  },
  hold_lost: { message: 'The synthesis took too long. Nothing was charged.', details: { transient: true } },
  too_many_at_once: {
    message: 'Too many of your requests are being spoken. Nothing was charged; repeat it once some have ended.',
  },
  one_at_a_time_while_unpaid: {
    message:
      'Much of what was spoken for you lately failed and was not paid: one request at a time, until some succeed or an ' +
      'hour has passed. Nothing was charged; repeat it once the other has ended.',
  },
};

/**
 * The answer to a payment that was refused: the one table from refusals to HTTP.
 * @param challenge makes the 402, which is the endpoint's own
 */
export function refusalAnswer<Code extends RefusalCode, Challenge>(
  refusal: Refused<Code>,
  challenge: (refusal: Refused, message: string) => Challenge,
) {
  const { code, reason } = refusal;
  const message = messageOf(refusal);
  switch (code) {
    case 'PAYMENT_REQUIRED':
      return challenge(refusal, message);
    case 'RATE_LIMITED': {
      const details = { reason, retryAfterSeconds: ONE_AT_A_TIME_RETRY_SECONDS };
      return { ...failure('RATE_LIMITED', message, details), headers: { 'retry-after': ONE_AT_A_TIME_RETRY_SECONDS } };
    }
    default:
      return refusalFailure(refusal as Refused<Exclude<Code, 'PAYMENT_REQUIRED' | 'RATE_LIMITED'>>);
  }
}

/** Likewise, where neither a payment nor patience would help. */
export function refusalFailure<Code extends Exclude<RefusalCode, 'PAYMENT_REQUIRED' | 'RATE_LIMITED'>>(
  refusal: Refused<Code>,
) {
  const { code, reason, fault, transaction } = refusal;
  const known = fault ? { field: fault.field, rule: fault.rule } : REASONS[reason]?.details;
  const details = known ?? { reason, ...(transaction !== undefined && { transaction }) };
  const answer = failure(code, messageOf(refusal), details);
  const isOpen = code === 'PAYMENT_REPLAY_PENDING' || code === 'PAYMENT_OUTCOME_UNKNOWN';
  return isOpen ? { ...answer, headers: { 'retry-after': OPEN_PAYMENT_RETRY_SECONDS } } : answer;
}

const messageOf = ({ code, reason, fault }: Refused): string =>
  fault?.message ?? REASONS[reason]?.message ?? MESSAGES[code];
