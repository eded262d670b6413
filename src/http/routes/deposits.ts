import type { CreateDepositRequest, CreateDepositResult } from '../../contract/operations.ts';
import type { DepositReplays, DepositResult, Deposits } from '../../payments/prepaid/deposits.ts';
import { NOTHING_CHARGED, paymentAfter, type Refused, unknownPayment } from '../../payments/refusal.ts';
import { offersFor, type PaymentTerms, type Resource } from '../../payments/x402/challenge.ts';
import { type PaymentIdentity, readPaymentHeader } from '../../payments/x402/payment-lookup.ts';
import { isSignedByPayer } from '../../payments/x402/transfer-proof.ts';
import type { OperationContext } from '../operations.ts';
import { PRIVATE_CACHE } from '../reply.ts';
import { failure, isAnswer } from '../structured-error.ts';
import { refuseForeignHeaders, refuseFormerHeader } from './flows.ts';
import { askForPayment, paymentRequired } from './payment-required.ts';
import { walletBody } from './prepaid-account.ts';
import { refusalAnswer, refusalFailure, showReceipt } from './refusals.ts';

export type OfferedDeposits =
  | { readonly terms: PaymentTerms; readonly deposits: Deposits }
  | Extract<CreateDepositResult, { status: 503 }>;

export interface DepositOptions {
  readonly resource: Resource;
  readonly offered: OfferedDeposits;
  readonly replays: DepositReplays;
  /** Headers of flows that never pay here, and of all flows that a payment excludes (R36). */
  readonly foreignHeaders: { readonly always: readonly string[]; readonly withPayment: readonly string[] };
}

/** Credits the payer's wallet, or returns the challenge (R35). The contract bounds the amount. */
export async function makeDeposit(
  { resource, offered, replays, foreignHeaders }: DepositOptions,
  { headers, body }: CreateDepositRequest,
  context: OperationContext,
): Promise<CreateDepositResult> {
  const { method, url, bytes, traceId, log } = context;
  const amountMicroUsd = BigInt(body.amountMicroUsd);
  const isPaid = headers['payment-signature'] !== undefined;
  const foreign = refuseForeignHeaders(context, isPaid ? foreignHeaders.withPayment : foreignHeaders.always);
  const refusal = foreign ?? (isPaid ? undefined : refuseFormerHeader(context));
  if (refusal) return refusal;
  if (!isPaid) {
    return isAnswer(offered) ? offered : askForPayment(resource, offersFor(offered.terms, amountMicroUsd)[0]);
  }
  const attempt = await context.rateLimits.attempt();
  if (isAnswer(attempt)) return attempt;
  try {
    return await credit(attempt.succeed);
  } finally {
    await attempt.close();
  }

  async function credit(onAdmitted: () => void): Promise<CreateDepositResult> {
    const shown = readPaymentHeader(headers);
    if (shown.outcome === 'refused') return isAnswer(offered) ? offered : refusalFailure(shown);
    const { credential: envelope } = shown;
    context.addLogFields({ flow: 'deposit' });
    const identity = { method, url, bytes, envelope, traceId, log };
    if (isAnswer(offered) || !isSignedByPayer(envelope, offered.terms.asset)) {
      return answerReplay(identity, isAnswer(offered) ? offered : NOT_BY_PAYER, onAdmitted);
    }
    const { terms, deposits } = offered;
    const offers = offersFor(terms, amountMicroUsd);
    context.payment = unknownPayment(amountMicroUsd);
    const result = await deposits.deposit({ ...identity, offers, resource }, onAdmitted);
    return answer(result, ({ reason }, message) => paymentRequired(resource, offers[0], reason, message));
  }

  /** Returns the response to an earlier request with the same payment, otherwise the refusal (R45). */
  async function answerReplay(
    identity: PaymentIdentity,
    refusal: CreateDepositResult,
    onAdmitted: () => void,
  ): Promise<CreateDepositResult> {
    const replay = await replays.find(identity);
    if (!replay) {
      context.payment = NOTHING_CHARGED;
      return refusal;
    }
    onAdmitted();
    return answer(replay, ({ reason }, message) => ({
      ...failure('PAYMENT_REQUIRED', message, { reason }),
      headers: { 'cache-control': 'no-store' },
    }));
  }

  function answer(
    result: DepositResult,
    challenge: (refusal: Refused, message: string) => Extract<CreateDepositResult, { status: 402 }>,
  ): CreateDepositResult {
    if (result.outcome === 'refused') {
      context.payment = paymentAfter(result, amountMicroUsd);
      showReceipt(result.receipt, context);
      return refusalAnswer(result, challenge);
    }
    const { receipt, address, balanceMicroUsd, creditedMicroUsd } = result;
    context.addLogFields({ chargedMicroUsd: creditedMicroUsd });
    return {
      status: 200,
      headers: { 'cache-control': PRIVATE_CACHE, 'payment-response': receipt },
      body: { ...walletBody(address, balanceMicroUsd), creditedMicroUsd, alreadyCredited: creditedMicroUsd === 0n },
    };
  }
}

const NOT_BY_PAYER = failure(
  'INVALID_PAYMENT_PAYLOAD',
  "payload.signature is not by authorization.from's own key for this payment. Sign the challenge unchanged with that key; a smart account can't deposit. You were not charged.",
  { field: 'payload.signature', rule: 'payer' },
);
