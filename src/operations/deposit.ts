import type { CreateDepositResult } from '../contract/operations.ts';
import type { JsonObject } from '../contract/types.ts';
import type { OperationContext } from '../http/context.ts';
import { errorBody, failure } from '../http/errors.ts';
import { PRIVATE } from '../http/headers.ts';
import type { Deposits } from '../payments/deposit.ts';
import { depositResource, encodeHeader, makeChallenge } from '../x402/challenge.ts';
import { decodeEnvelope, InvalidEnvelope, type PaymentEnvelope } from '../x402/envelope.ts';
import type { Asset } from '../x402/network.ts';
import { makeOffer } from '../x402/offer.ts';
import { currentPayee, type Payee, payablePayees } from '../x402/payees.ts';
import { PREPAID } from '../x402/prepaid.ts';
import { isSignedByPayer } from '../x402/transfer-digest.ts';
import { walletBody } from './prepaid.ts';

export interface DepositOptions {
  readonly baseUrl: string;
  readonly serviceName: string;
  readonly terms: { readonly asset: Asset; readonly payees: readonly Payee[] };
  readonly deposits: Deposits;
}

/** Seconds until a payer that is held to one request at a time may try again. */
const ONE_AT_A_TIME_RETRY_SECONDS = 5;

/** Credits the payer's wallet, or asks for the payment. The amount is within its bounds. */
export async function makeDeposit(
  { baseUrl, serviceName, terms, deposits }: DepositOptions,
  amountMicroUsd: number,
  context: OperationContext,
): Promise<CreateDepositResult> {
  const { headers, method, url, bytes } = context;
  const paid = headers['payment-signature'];
  const foreign = ['x-credit-account', ...(paid === undefined ? [] : PREPAID.headers)].find((name) => headers[name]);
  if (foreign !== undefined) {
    const details = { field: foreign, rule: 'one flow' };
    return failure(
      'INVALID_REQUEST',
      `${foreign} belongs to another payment flow. Send the headers of one flow.`,
      details,
    );
  }
  const resource = depositResource(baseUrl, serviceName);
  const retiring = payablePayees(terms.payees, new Date()).filter(({ status }) => status === 'retiring');
  const offers = [currentPayee(terms.payees), ...retiring].map(({ address }) =>
    makeOffer(terms.asset, BigInt(amountMicroUsd), address),
  ) as [ReturnType<typeof makeOffer>, ...ReturnType<typeof makeOffer>[]];
  const challenge = (error: string, message: string) => {
    const asked = makeChallenge(resource, offers[0], error);
    return {
      status: 402 as const,
      headers: { 'cache-control': 'no-store' as const, 'payment-required': encodeHeader(asked) },
      body: errorBody('PAYMENT_REQUIRED', message, asked as unknown as JsonObject),
    };
  };
  if (paid === undefined) {
    const message = 'Sign the challenge in PAYMENT-REQUIRED, and repeat the identical request with payment-signature.';
    return challenge('payment_required', message);
  }
  let envelope: PaymentEnvelope;
  try {
    envelope = decodeEnvelope(String(paid));
  } catch (error) {
    if (!(error instanceof InvalidEnvelope)) throw error;
    const { field, rule } = error;
    return failure('INVALID_PAYMENT_PAYLOAD', `payment-signature can't be read. ${error.message}`, { field, rule });
  }
  if (!isSignedByPayer(envelope, terms.asset)) {
    const message = 'The payment must be signed by the key of the payer: smart accounts could not spend a deposit.';
    return failure('INVALID_PAYMENT_PAYLOAD', message, { field: 'payload.signature', rule: 'payer' });
  }

  const result = await deposits.deposit({ method, url, bytes, envelope, offers, resource });
  if (result.outcome === 'credited') {
    const { receipt, address, balanceMicroUsd, creditedMicroUsd } = result;
    return {
      status: 200,
      headers: { 'cache-control': PRIVATE, 'payment-response': receipt },
      body: { ...walletBody(address, balanceMicroUsd), creditedMicroUsd, alreadyCredited: creditedMicroUsd === 0n },
    };
  }
  const { code, reason, message } = result.refusal;
  switch (code) {
    case 'PAYMENT_REQUIRED':
      return challenge(reason, message);
    case 'RATE_LIMITED':
      return { ...failure(code, message, { reason }), headers: { 'retry-after': ONE_AT_A_TIME_RETRY_SECONDS } };
    case 'REPLAY_CACHE_UNAVAILABLE':
    case 'TTS_UNAVAILABLE':
      throw new Error(`a deposit was refused with ${code}`);
    default: {
      const { transaction } = result;
      return failure(code, message, { reason, ...(transaction !== undefined && { transaction }) });
    }
  }
}
