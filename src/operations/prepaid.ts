import type { GetPrepaidAccountResult, GetX402SpeechResult } from '../contract/operations.ts';
import { isUnavailable } from '../db/errors.ts';
import type { OperationContext } from '../http/context.ts';
import { failure } from '../http/errors.ts';
import { PRIVATE } from '../http/headers.ts';
import type { PaidFor } from '../ledger/paid-for.ts';
import { formatUsd } from '../money.ts';
import { speakBuffered } from '../payments/buffered.ts';
import { paidFor } from '../payments/paid-for.ts';
import type { PrepaidBalances } from '../payments/prepaid.ts';
import { type Place, SpeechError, type Utterance } from '../speech/provider.ts';
import { PREPAID } from '../x402/prepaid.ts';
import { type PrepaidCredential, readCredential, signedBalanceRead } from '../x402/prepaid-credential.ts';
import { busy } from './busy.ts';
import { refuseForeignHeaders, refuseIncompletePrepaid } from './flows.ts';
import { type Purchase, quoteExpired, textMissing, utteranceOf } from './purchase.ts';
import type { Speaking } from './speaking.ts';
import { speechFailure } from './speech-failure.ts';

const NOT_CHARGED = 'Nothing was charged.';

export interface PrepaidParts {
  readonly balances: PrepaidBalances;
  readonly baseUrl: string;
}

const MAX_AMOUNT = failure('INVALID_REQUEST', 'x-x402-max-amount must be a uint256.', {
  field: 'x-x402-max-amount',
  rule: 'uint256',
});

const UNAUTHORIZED = failure(
  'UNAUTHORIZED',
  'The signature was not made by x-x402-account for this request. GET /docs explains what is signed.',
  { field: 'x-x402-signature', rule: 'eip712' },
);

const EXPIRY = failure(
  'INVALID_REQUEST',
  `x-x402-expiry is past, or more than ${PREPAID.signatureTtlSeconds} seconds ahead. Sign the request again.`,
  { field: 'x-x402-expiry', rule: 'lifetime', maximumSeconds: PREPAID.signatureTtlSeconds },
);

const REPLAYED = failure('PREPAID_NONCE_REPLAYED', 'This nonce was spent before. Sign the request with a new one.', {
  field: 'x-x402-nonce',
  rule: 'unique',
});

/** Speaks what the caller's prepaid balance pays for. All five prepaid headers are there. */
export async function speakPrepaid(
  parts: PrepaidParts,
  { order, hasExpired }: Purchase,
  speech: Speaking,
  context: OperationContext,
): Promise<GetX402SpeechResult> {
  const credential = readCredential(context.headers);
  if (!credential) return MAX_AMOUNT;
  if (hasExpired) return quoteExpired();
  if (order.text === undefined) return textMissing();
  context.note({ flow: 'prepaid', characters: order.text.length });
  const utterance = utteranceOf(order, order.text);
  const place = speech.admission.admitBuffered(utterance);
  if (place instanceof SpeechError) return speechFailure(place, NOT_CHARGED);
  try {
    const { priceMicroUsd } = order;
    const bought = paidFor({ ...order, text: order.text }, context.traceId);
    const request = { credential, priceMicroUsd, bought, utterance, timeoutMs: speech.timeoutMs };
    return await speakAt(place, parts, request, context);
  } finally {
    place.release();
  }
}

async function speakAt(
  place: Place,
  parts: PrepaidParts,
  request: {
    credential: PrepaidCredential;
    priceMicroUsd: bigint;
    bought: PaidFor;
    utterance: Utterance;
    timeoutMs: number;
  },
  context: OperationContext,
): Promise<GetX402SpeechResult> {
  const { balances, baseUrl } = parts;
  const { credential, priceMicroUsd, bought, utterance, timeoutMs } = request;
  const authorization = await balances.authorize(credential, context, priceMicroUsd, bought, context.answer);
  switch (authorization.outcome) {
    case 'unauthorized':
    case 'expiry':
      return refuseCredential(parts, credential, context);
    case 'unknown_account': {
      const limited = await context.admission.credentialFailed();
      if (limited) return limited;
      showMoney(context, 0n, 0n);
      return tooLittle('never_deposited', 'This address has no prepaid balance. Deposit first.', 0n);
    }
    case 'repeated':
      // It takes no slot of its address's window, but is counted at the edge; the balance is not known here.
      context.setHeader('x-x402-charged', '0');
      return REPLAYED;
    case 'busy':
      return busy(authorization.reason);
    case 'held':
      break;
    default: {
      const { outcome, balanceMicroUsd } = authorization;
      context.admission.credentialVerified();
      showMoney(context, balanceMicroUsd, 0n);
      switch (outcome) {
        case 'replayed':
          return REPLAYED;
        case 'over_max_amount':
          return tooLittle(outcome, 'The price is above x-x402-max-amount.', balanceMicroUsd);
        case 'insufficient_funds':
          return tooLittle(outcome, 'The prepaid balance is smaller than the price. Deposit more.', balanceMicroUsd);
      }
    }
  }
  context.admission.credentialVerified();
  const { hold } = authorization;
  try {
    const { audio, receipt } = await speakBuffered(hold, place, utterance, timeoutMs);
    const chargedMicroUsd = receipt.isCharged ? priceMicroUsd : 0n;
    context.note({ chargedMicroUsd });
    showMoney(context, receipt.balanceMicroUsd, chargedMicroUsd);
    return receipt.isCharged
      ? { status: 200, headers: { 'cache-control': PRIVATE }, body: audio }
      : failure('TTS_UNAVAILABLE', 'The synthesis took too long. Nothing was charged.', { transient: true });
  } catch (error) {
    if (!isUnavailable(error)) showMoney(context, hold.restoredMicroUsd, 0n);
    if (!(error instanceof SpeechError)) throw error;
    context.note({ chargedMicroUsd: 0n });
    context.log.warn({ err: error }, 'synthesis failed');
    return speechFailure(error, NOT_CHARGED);
  }

  function tooLittle(reason: string, message: string, balanceMicroUsd: bigint) {
    return {
      ...failure('PAYMENT_REQUIRED', message, {
        reason,
        priceMicroUsd: Number(priceMicroUsd),
        balanceMicroUsd: Number(balanceMicroUsd),
        depositEndpoint: `${baseUrl}/x402/deposit`,
      }),
      headers: { 'cache-control': 'no-store' as const },
    };
  }
}

/** Shows a wallet's balance to who signs for it. */
export async function readPrepaidAccount(
  parts: PrepaidParts,
  address: string,
  context: OperationContext,
): Promise<GetPrepaidAccountResult> {
  const { balances } = parts;
  const foreign = refuseForeignHeaders(context.headers, ['payment-signature', 'x-credit-account']);
  if (foreign) return foreign;
  const incomplete = refuseIncompletePrepaid(context.headers);
  if (incomplete) return incomplete;
  const credential = readCredential(context.headers);
  if (!credential) return MAX_AMOUNT;
  const reading = await balances.read(credential, signedBalanceRead(context), address);
  switch (reading.outcome) {
    case 'unauthorized':
    case 'expiry':
      return refuseCredential(parts, credential, context);
    case 'unknown_account':
      return (
        (await context.admission.credentialFailed()) ??
        failure('NOT_FOUND', 'This address has never deposited. POST /x402/deposit makes its account.', {
          field: 'address',
        })
      );
    case 'read':
      context.admission.credentialVerified();
      return {
        status: 200,
        headers: { 'cache-control': PRIVATE },
        body: walletBody(credential.account, reading.balanceMicroUsd),
      };
  }
}

/** A credential that fails. An expiry out of range is told first, whoever signed it (R30). */
async function refuseCredential(parts: PrepaidParts, credential: PrepaidCredential, context: OperationContext) {
  const limited = await context.admission.credentialFailed();
  if (limited) return limited;
  return (await parts.balances.isInTime(credential)) ? UNAUTHORIZED : EXPIRY;
}

/** @param address in lower case */
export const walletBody = (address: string, balanceMicroUsd: bigint) => ({
  address,
  balanceMicroUsd,
  balanceUsd: formatUsd(balanceMicroUsd),
  currency: 'USD' as const,
  refundable: false as const,
});

/** On every answer after authentication, whatever its status. */
function showMoney(context: OperationContext, balanceMicroUsd: bigint, chargedMicroUsd: bigint): void {
  context.setHeader('x-x402-balance', String(balanceMicroUsd));
  context.setHeader('x-x402-charged', String(chargedMicroUsd));
}
