import type { CreateDepositRequest, CreateDepositResult } from '../contract/operations.ts';
import { PRIVATE } from '../http/headers.ts';
import type { OperationContext } from '../http/operation-context.ts';
import { failure } from '../http/structured-error.ts';
import type { DepositReplays, DepositResult, Deposits } from '../payments/deposits.ts';
import { NOTHING_CHARGED, outcomeOf, unknownPayment } from '../payments/payment-outcome.ts';
import { type PaymentIdentity, readPaymentHeader } from '../payments/payment-request.ts';
import type { Refused } from '../payments/refusal.ts';
import type { Resource } from '../x402/challenge.ts';
import type { Asset } from '../x402/network.ts';
import type { Payee } from '../x402/payees.ts';
import { isSignedByPayer } from '../x402/transfer-digest.ts';
import { refuseForeignHeaders, refuseFormerHeader } from './flows.ts';
import { askForPayment, offersFor, paymentRequired } from './payment-required.ts';
import { walletBody } from './prepaid-account.ts';
import { refusalAnswer, refusalFailure } from './refusals.ts';
import { showReceipt } from './x402-speech.ts';

/** What deposits are made with. */
export interface OfferedDeposits {
  readonly terms: { readonly asset: Asset; readonly payees: readonly Payee[] };
  readonly deposits: Deposits;
}

/** Why no deposit is made now. */
export type DepositRefusal = Extract<CreateDepositResult, { status: 503 }>;

export interface DepositOptions {
  readonly resource: Resource;
  readonly offered: OfferedDeposits | DepositRefusal;
  readonly replays: DepositReplays;
  /** Of the flows that never pay here, and of all that a payment excludes (R36). */
  readonly foreignHeaders: { readonly always: readonly string[]; readonly withPayment: readonly string[] };
}

/** Credits the payer's wallet, or asks for the payment (R35). The amount is within its bounds. */
export async function makeDeposit(
  { resource, offered, replays, foreignHeaders }: DepositOptions,
  { headers, body }: CreateDepositRequest,
  context: OperationContext,
): Promise<CreateDepositResult> {
  const { method, url, bytes, traceId } = context;
  const amountMicroUsd = BigInt(body.amountMicroUsd);
  const isPaid = headers['payment-signature'] !== undefined;
  const foreign = refuseForeignHeaders(context, isPaid ? foreignHeaders.withPayment : foreignHeaders.always);
  const refusal = foreign ?? (isPaid ? undefined : refuseFormerHeader(context));
  if (refusal) return refusal;
  if (!isPaid) {
    return 'status' in offered ? offered : askForPayment(resource, offersFor(offered.terms, amountMicroUsd)[0]);
  }
  const attempt = await context.admission.attempt();
  if ('status' in attempt) return attempt;
  try {
    return await credit(attempt.succeed);
  } finally {
    await attempt.fail();
  }

  async function credit(onAdmitted: () => void): Promise<CreateDepositResult> {
    const shown = readPaymentHeader(headers);
    if (shown.outcome === 'refused') return 'status' in offered ? offered : refusalFailure(shown);
    const { credential: envelope } = shown;
    context.note({ flow: 'deposit' });
    const identity = { method, url, bytes, envelope, traceId };
    if ('status' in offered || !isSignedByPayer(envelope, offered.terms.asset)) {
      return answerPrevious(identity, 'status' in offered ? offered : NOT_BY_PAYER, onAdmitted);
    }
    const { terms, deposits } = offered;
    const offers = offersFor(terms, amountMicroUsd);
    context.payment = unknownPayment(amountMicroUsd);
    const result = await deposits.deposit({ ...identity, offers, resource }, onAdmitted);
    return answer(result, ({ reason }, message) => paymentRequired(resource, offers[0], reason, message));
  }

  /** The answer to the earlier request with the same payment, else what speaks against a new one (R45). */
  async function answerPrevious(
    identity: PaymentIdentity,
    refusal: CreateDepositResult,
    onAdmitted: () => void,
  ): Promise<CreateDepositResult> {
    const previous = await replays.find(identity);
    if (!previous) {
      context.payment = NOTHING_CHARGED;
      return refusal;
    }
    onAdmitted();
    return answer(previous, ({ reason }, message) => ({
      ...failure('PAYMENT_REQUIRED', message, { reason }),
      headers: { 'cache-control': 'no-store' },
    }));
  }

  function answer(
    result: DepositResult,
    challenge: (refusal: Refused, message: string) => Extract<CreateDepositResult, { status: 402 }>,
  ): CreateDepositResult {
    if (result.outcome === 'refused') {
      context.payment = outcomeOf(result, amountMicroUsd);
      showReceipt(result.receipt, context);
      return refusalAnswer(result, challenge);
    }
    const { receipt, address, balanceMicroUsd, creditedMicroUsd } = result;
    context.note({ chargedMicroUsd: creditedMicroUsd });
    return {
      status: 200,
      headers: { 'cache-control': PRIVATE, 'payment-response': receipt },
      body: { ...walletBody(address, balanceMicroUsd), creditedMicroUsd, alreadyCredited: creditedMicroUsd === 0n },
    };
  }
}

const NOT_BY_PAYER = failure(
  'INVALID_PAYMENT_PAYLOAD',
  'The payment must be signed by the key of the payer: smart accounts could not spend a deposit.',
  { field: 'payload.signature', rule: 'payer' },
);
