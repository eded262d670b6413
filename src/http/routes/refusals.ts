import type { Receipt, RefusalCode, Refused } from '../../payments/refusal.ts';
import type { SpeechFailed } from '../../payments/speak.ts';
import { REPLAY_WINDOW_SECONDS } from '../../payments/x402/payment.ts';
import { PREPAID } from '../../payments/x402/prepaid-terms.ts';
import { FACILITATOR_LACKS_GAS, LACKS_BALANCE } from '../../payments/x402/solvency.ts';
import type { SpeechError } from '../../speech/provider.ts';
import type { OperationContext } from '../operations.ts';
import { failure } from '../structured-error.ts';

const ONE_AT_A_TIME_RETRY_SECONDS = 5;
const OPEN_PAYMENT_RETRY_SECONDS = 2;
const UNAVAILABLE_RETRY_SECONDS = 5;

const MESSAGES: Readonly<Record<RefusalCode, string>> = {
  INVALID_REQUEST:
    'The request is not valid. details names the field and the rule. Correct it and send the request again. You were not charged.',
  INVALID_PAYMENT_PAYLOAD:
    'The payment in payment-signature is not valid. Sign the challenge in PAYMENT-REQUIRED again. You were not charged.',
  UNAUTHORIZED:
    'The credential is not valid for this request. Check the account and the signature. You were not charged.',
  PAYMENT_REQUIRED:
    'The payment was refused. Sign the challenge in PAYMENT-REQUIRED and send it with a new payment identifier. You were ' +
    'not charged.',
  PAYMENT_IDENTIFIER_CONFLICT:
    'This payment identifier or authorization belongs to an earlier request. If it was this request, repeat it unchanged, ' +
    'with its first signature; otherwise sign a new payment. This request was not charged.',
  PAYMENT_REPLAY_PENDING:
    'Another request with this payment is still running, or was interrupted. Repeat the identical request later. You are charged at most once.',
  PAYMENT_OUTCOME_UNKNOWN:
    'It is not known yet whether this payment was settled, so you may have been charged. Repeat the identical request ' +
    "later, and make no new payment without the user's approval.",
  PREPAID_NONCE_REPLAYED:
    'Another request used the nonce in x-x402-nonce. If that request got no response, repeat it unchanged; a new nonce is ' +
    'a new purchase. This request was not charged.',
  RATE_LIMITED: 'Too many of your requests run at once. Retry when the others have finished. You were not charged.',
  PAYMENT_ERROR:
    'The service could not check the payment. Repeat the identical request later, or sign a new payment if this one has ' +
    'expired. You were not charged.',
  REPLAY_CACHE_UNAVAILABLE: 'The audio store is unavailable. Repeat the identical request later. You were not charged.',
  TTS_UNAVAILABLE: 'Speech is unavailable. Retry later. You were not charged.',
};

/** Messages for reasons that differ by flow: they replace those of REASONS in the 402 of card and prepaid. */
const FLOW_REASONS: Readonly<Record<'card' | 'prepaid', Readonly<Record<string, string>>>> = {
  card: {
    insufficient_funds: "The account's balance is lower than the price. Add credit at topUpUrl. You were not charged.",
    over_max_amount:
      'The price is above x-credit-max-amount. Send a higher maximum or a shorter text. You were not charged.',
  },
  prepaid: {
    insufficient_funds:
      'The prepaid balance is lower than the price. Deposit more at POST /x402/deposit. You were not charged.',
    over_max_amount:
      'The price is above x-x402-max-amount. Sign a higher maximum or send a shorter text. You were not charged.',
  },
};

export const messageIn = (flow: 'card' | 'prepaid', reason: string, otherwise: string): string =>
  FLOW_REASONS[flow][reason] ?? otherwise;

const UNTIL_EXPIRY =
  'You may still be charged until this payment expires. Repeat the identical request later; pay again only once ' +
  'details.payment.state is not_charged.';
const MAY_STILL_SETTLE = `The facilitator refused this payment. ${UNTIL_EXPIRY}`;

const LACKS_USDC =
  'The wallet has too little USDC for this payment and its earlier payments that are not settled yet. Add USDC, then sign a new payment. You were not ' +
  'charged.';

const GAS =
  "The facilitator refused this payment although the wallet covers it: the facilitator's own wallet probably lacks gas. ";
const LACK_OF_GAS = {
  not_charged: `${GAS}Repeat the identical request later, or sign a new payment if this one has expired. You were not charged.`,
  unknown: `${GAS}${UNTIL_EXPIRY}`,
};

/** The facilitator's reasons that a new signature does not change. `invalid_payment` stands for one without a word. */
const NOT_BY_SIGNING: ReadonlySet<string> = new Set([
  'invalid_payment',
  'invalid_payload',
  'invalid_payment_requirements',
  'invalid_request',
  'invalid_scheme',
  'invalid_network',
  'invalid_x402_version',
  'unsupported_scheme',
]);
const notBySigning = (reason: string): string =>
  `The facilitator refuses this payment (${reason}), and signing again will hardly help. The facilitator's minimum ` +
  'may be above this amount. Pay a larger amount, such as for a longer text, or ask the operator. You were not charged.';

/** Messages for single reasons, those of FLOW_REASONS in direct payments; `details` replace the reason in the error. */
const REASONS: Readonly<Record<string, { message: string; details?: Readonly<Record<string, string | number>> }>> = {
  no_account: {
    message:
      'The request names no credit account. Send its id in x-credit-account, or buy credit at topUpUrl. You were not charged.',
  },
  unknown_account: {
    message:
      'x-credit-account is not the id of an account at this service. Check it, or buy credit at topUpUrl. You were not charged.',
  },
  account_frozen: { message: 'The operator has frozen this account. Contact the operator. You were not charged.' },
  account_indebted: {
    message: 'A refund or dispute left this account in debt. Buy credit at topUpUrl to pay it. Nothing was charged.',
  },
  idempotency_key_reused: {
    message:
      'You used this idempotency-key for a different request. Send this request with a new key. You were not charged.',
    details: { field: 'idempotency-key', rule: 'same request' },
  },
  never_deposited: {
    message:
      'The address in x-x402-account has no prepaid balance. Deposit at POST /x402/deposit first. You were not charged.',
  },
  signature: {
    message:
      'x-x402-account did not sign this request. Read the metadata again, then sign as GET /docs explains. You were not charged.',
    details: { field: 'x-x402-signature', rule: 'eip712' },
  },
  expiry: {
    message: `x-x402-expiry is in the past, or too far ahead. Sign again with an expiry at most ${PREPAID.signatureTtlSeconds} seconds ahead. You were not charged.`,
    details: { field: 'x-x402-expiry', rule: 'lifetime', maximumSeconds: PREPAID.signatureTtlSeconds },
  },
  nonce_spent: { message: MESSAGES.PREPAID_NONCE_REPLAYED, details: { field: 'x-x402-nonce', rule: 'unique' } },
  invalid_signature: {
    message:
      'The signature was not made by the key of authorization.from. Sign the challenge in PAYMENT-REQUIRED with that key ' +
      'and send it with a new payment identifier. You were not charged.',
  },
  paid_by_another_request: {
    message:
      'An earlier request paid with this payment identifier or authorization. If it was this request, repeat it ' +
      'unchanged, with its first signature, to get its response. For another request, sign a new payment. This request was not charged.',
  },
  accepted_is_no_offer: {
    message:
      '`accepted` in the payment is not an offer of this service. Copy one entry of accepts unchanged and sign again. You were not charged.',
  },
  authorization_to_another_payee: {
    message: "authorization.to is not the offer's payTo. Sign the challenge unchanged. You were not charged.",
  },
  authorization_of_another_amount: {
    message: "authorization.value is not the offer's amount. Sign the challenge unchanged. You were not charged.",
  },
  authorization_expires_too_soon: {
    message:
      'authorization.validBefore is too soon: the audio would not be complete by then. Sign the challenge again. You were not charged.',
  },
  insufficient_funds: {
    message: LACKS_USDC,
  },
  [LACKS_BALANCE]: { message: LACKS_USDC },
  audio_lost: {
    message: 'This request is paid, but its audio is lost. Contact the operator. You are not charged again.',
  },
  audio_not_readable: {
    message:
      "This request is paid, but its audio can't be read now. Repeat the identical request later; you are not charged again.",
  },
  replay_window_over: {
    message: `This payment was used before, and its audio could be fetched again for only ${REPLAY_WINDOW_SECONDS} seconds. Sign a new payment. You were not charged again.`,
  },
  one_at_a_time_after_failure: {
    message:
      'A recent payment of this wallet failed, so it may send only one request at a time. Retry when your running request has finished. You were not charged.',
  },
  too_many_unsettled: {
    message: 'Too many recent payments to this service were not settled. Retry later. You were not charged.',
  },
  too_many_captures: {
    message: 'The service must first record earlier charges in its database. Retry later. You were not charged.',
  },
  not_confirmed_yet: {
    message:
      'The transfer of the deposit is not confirmed on the chain yet. It is credited once it is confirmed; repeat the identical request to see the balance.',
  },
  too_many_at_once: {
    message: 'Too many of your requests are running. Retry when some have finished. You were not charged.',
  },
  one_at_a_time_while_unpaid: {
    message:
      'Many of your recent requests were not paid, so you may send one at a time for up to an hour. Retry when your ' +
      'running request has finished. You were not charged.',
  },
};

const RETRY_AFTER_SECONDS: Readonly<Partial<Record<RefusalCode, number>>> = {
  PAYMENT_REPLAY_PENDING: OPEN_PAYMENT_RETRY_SECONDS,
  PAYMENT_OUTCOME_UNKNOWN: OPEN_PAYMENT_RETRY_SECONDS,
  TTS_UNAVAILABLE: UNAVAILABLE_RETRY_SECONDS,
};

/** Maps a refused payment to its HTTP response. @param challenge makes the endpoint's own 402 */
export function refusalAnswer<Code extends RefusalCode, Challenge>(
  refusal: Refused<Code>,
  challenge: (refusal: Refused, message: string) => Challenge,
) {
  const { code, reason } = refusal;
  const message = messageOf(refusal);
  if (code === 'PAYMENT_REQUIRED') return challenge(refusal, message);
  if (code === 'RATE_LIMITED') {
    const details = { reason, retryAfterSeconds: ONE_AT_A_TIME_RETRY_SECONDS };
    return { ...failure('RATE_LIMITED', message, details), headers: { 'retry-after': ONE_AT_A_TIME_RETRY_SECONDS } };
  }
  return refusalFailure(refusal as Refused<Exclude<Code, 'PAYMENT_REQUIRED' | 'RATE_LIMITED'>>);
}

export function refusalFailure<Code extends Exclude<RefusalCode, 'PAYMENT_REQUIRED' | 'RATE_LIMITED'>>(
  refusal: Refused<Code>,
) {
  const { code, reason, fault, transaction, facilitatorReason } = refusal;
  const known = fault ? { field: fault.field, rule: fault.rule } : REASONS[reason]?.details;
  const details = known ?? {
    reason,
    ...(transaction !== undefined && { transaction }),
    ...(facilitatorReason !== undefined && { facilitatorReason, transient: false }),
  };
  const answer = failure(code, messageOf(refusal), details);
  const retryAfterSeconds = RETRY_AFTER_SECONDS[code];
  return retryAfterSeconds === undefined ? answer : { ...answer, headers: { 'retry-after': retryAfterSeconds } };
}

function messageOf({ code, reason, fault, payment, facilitatorReason }: Refused): string {
  if (fault) return fault.message;
  if (reason === FACILITATOR_LACKS_GAS) return LACK_OF_GAS[payment?.state === 'unknown' ? 'unknown' : 'not_charged'];
  if (code === 'PAYMENT_REQUIRED' && payment?.state === 'unknown') return MAY_STILL_SETTLE;
  if (facilitatorReason !== undefined) return notBySigning(facilitatorReason);
  if (NOT_BY_SIGNING.has(reason)) return notBySigning(reason);
  return REASONS[reason]?.message ?? MESSAGES[code];
}

/** Counts a credential's result (R13, R48). Returns a 429 if the address has shown too many that fail. */
export async function limitCredential({ credential }: Refused, { rateLimits }: OperationContext) {
  if (credential === 'verified') rateLimits.uncountVerified();
  return credential === 'failed' ? rateLimits.takeForFailedCredential() : undefined;
}

export function showReceipt(receipt: Receipt | undefined, context: OperationContext): void {
  for (const [name, value] of Object.entries(receipt ?? {})) context.setHeader(name, String(value));
}

const ASK_OPERATOR = 'Change the request, or ask the operator.';

/** The error for speech that was refused or failed. Its hold is voided. */
export function speechFailed({ error, hold }: SpeechFailed, context: OperationContext) {
  if (hold) {
    context.addLogFields({ chargedMicroUsd: 0n });
    context.log.warn({ err: error }, 'speech synthesis failed, and the caller was not charged. Read err for the cause');
  }
  return speechFailure(error);
}

export function speechFailure({ code, message, transient, retryAfterSeconds, reason }: SpeechError) {
  const next = transient ? 'Retry later.' : ASK_OPERATOR;
  const answer = failure(code, `${message} ${next} This request was not charged.`, {
    transient,
    ...(reason !== undefined && { reason }),
  });
  if (answer.status !== 503 || retryAfterSeconds === undefined) return answer;
  return { ...answer, headers: { 'retry-after': retryAfterSeconds } };
}
