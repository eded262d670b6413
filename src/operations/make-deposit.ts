import type { CreateDepositRequest, CreateDepositResult } from '../contract/operations.ts';
import { PRIVATE } from '../http/headers.ts';
import type { OperationContext } from '../http/operation-context.ts';
import { failure } from '../http/structured-error.ts';
import type { Deposits } from '../payments/deposits.ts';
import { readPaymentHeader } from '../payments/payment-request.ts';
import type { Resource } from '../x402/challenge.ts';
import type { Asset } from '../x402/network.ts';
import type { Payee } from '../x402/payees.ts';
import { isSignedByPayer } from '../x402/transfer-digest.ts';
import { refuseForeignHeaders, refuseFormerHeader } from './flows.ts';
import { type Pauses, pausedAnswer } from './paused.ts';
import { askForPayment, offersFor, paymentRequired } from './payment-required.ts';
import { walletBody } from './prepaid-account.ts';
import { refusalAnswer, refusalFailure } from './refusals.ts';
import { showReceipt } from './x402-speech.ts';

export interface DepositOptions {
  readonly resource: Resource;
  readonly terms: { readonly asset: Asset; readonly payees: readonly Payee[] };
  readonly deposits: Deposits;
  readonly pauses: Pauses;
  /** Of the flows that never pay here, and of all that a payment excludes (R36). */
  readonly foreignHeaders: { readonly always: readonly string[]; readonly withPayment: readonly string[] };
}

/** Credits the payer's wallet, or asks for the payment (R35). The amount is within its bounds. */
export async function makeDeposit(
  { resource, terms, deposits, pauses, foreignHeaders }: DepositOptions,
  { headers, body }: CreateDepositRequest,
  context: OperationContext,
): Promise<CreateDepositResult> {
  const { method, url, bytes, traceId } = context;
  const isPaid = headers['payment-signature'] !== undefined;
  const foreign = refuseForeignHeaders(context, isPaid ? foreignHeaders.withPayment : foreignHeaders.always);
  const refusal = foreign ?? (isPaid ? undefined : refuseFormerHeader(context));
  if (refusal) return refusal;
  const offers = offersFor(terms, BigInt(body.amountMicroUsd));
  const isPaused = pauses.has('deposit');
  if (!isPaid) return isPaused ? pausedAnswer('deposit') : askForPayment(resource, offers[0]);

  const attempt = await context.admission.attempt();
  if ('status' in attempt) return attempt;
  try {
    return await credit(attempt.succeed);
  } finally {
    await attempt.fail();
  }

  async function credit(onAdmitted: () => void): Promise<CreateDepositResult> {
    const shown = readPaymentHeader(headers);
    if (shown.outcome === 'refused') return refusalFailure(shown);
    const { credential: envelope } = shown;
    if (!isSignedByPayer(envelope, terms.asset)) {
      const message = 'The payment must be signed by the key of the payer: smart accounts could not spend a deposit.';
      return failure('INVALID_PAYMENT_PAYLOAD', message, { field: 'payload.signature', rule: 'payer' });
    }
    context.note({ flow: 'deposit' });
    const request = { method, url, bytes, envelope, offers, resource, traceId };
    const result = isPaused ? await deposits.replay(request) : await deposits.deposit(request, onAdmitted);
    if (isPaused) onAdmitted();
    if (!result) return pausedAnswer('deposit');
    if (result.outcome === 'refused') {
      showReceipt(result.receipt, context);
      return refusalAnswer(result, ({ reason }, message) => paymentRequired(resource, offers[0], reason, message));
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
