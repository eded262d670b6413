import type { X402DepositResponse } from '../contract/types.ts';
import type { Wire } from './api.ts';
import { checkChallenge } from './check-challenge.ts';
import type { Reader } from './outcome.ts';
import type { Service, Wallet } from './payment-way.ts';
import type { PendingPurchase } from './pending-purchase.ts';
import { type End, pursue } from './pursue.ts';
import { transactionOf } from './read-direct.ts';
import { readRefusal } from './read-refusal.ts';
import { type Shape, shaped } from './shape.ts';
import { newIdentifier, readChallenge, required, signPayment } from './sign-payment.ts';

export const DEPOSIT_TARGET = '/x402/deposit';
/** Milliseconds that one answer may take: the service itself waits two minutes for the transfer's confirmations. */
const ANSWER_MS = 180_000;
const PATIENCE_MS = 300_000;

/** A deposit that is credited. */
export interface Deposit {
  /** Whose balance it is. */
  readonly address: string;
  readonly balanceMicroUsd: bigint;
  /** 0 when it had been credited by an earlier request. */
  readonly creditedMicroUsd: bigint;
  readonly alreadyCredited: boolean;
  /** On the chain. */
  readonly transaction: string | null;
}

export interface DepositOptions {
  readonly signal: AbortSignal | undefined;
  /** Milliseconds after which an unconfirmed deposit is told as one whose end is unknown. */
  readonly patienceMs?: number | undefined;
  /** Is given the deposit before it leaves. Waited for; when it throws, nothing leaves. */
  readonly onPending?: ((pending: PendingPurchase) => Promise<void>) | undefined;
}

const CREDITED: Shape = {
  address: 'string',
  balanceMicroUsd: 'amount',
  creditedMicroUsd: 'amount',
  alreadyCredited: 'boolean',
};

const readDeposit: Reader<Deposit> = async (asked) => {
  const { pending, answer } = asked;
  const { response, body } = answer;
  if (!response.ok) return readRefusal(asked);
  const credited = shaped((await new Response(body).json()) as Wire<X402DepositResponse>, CREDITED);
  const deposit: Deposit = {
    address: credited.address,
    balanceMicroUsd: BigInt(credited.balanceMicroUsd),
    creditedMicroUsd: BigInt(credited.creditedMicroUsd),
    alreadyCredited: credited.alreadyCredited,
    transaction: transactionOf(response),
  };
  return { outcome: 'bought', bought: deposit, chargedMicroUsd: BigInt(pending.maxMicroUsd) };
};

/**
 * Pays into the wallet's prepaid balance, and waits until it is credited. It is no purchase: caps and budgets count what is
 * spent from it.
 * @throws OutcomeUnknownError whose `pending` is for `resumeDeposit`
 */
export async function deposit(
  wallet: Wallet,
  amountMicroUsd: bigint,
  service: Service,
  { signal, patienceMs, onPending }: DepositOptions,
): Promise<Deposit> {
  const { api, baseUrl } = service;
  const metadata = required(service.metadata);
  const body = `{"amountMicroUsd":${amountMicroUsd}}`;
  const challenge = await readChallenge(signal, (signal) =>
    api.POST(DEPOSIT_TARGET, { body: { amountMicroUsd: 0 }, bodySerializer: () => body, signal }),
  );
  const asked = await metadata.holds(
    (metadata) => checkChallenge(challenge, { metadata, amountMicroUsd, path: DEPOSIT_TARGET }),
    signal,
  );
  signal?.throwIfAborted();
  const identifier = newIdentifier();
  const { header, validBefore } = await signPayment(wallet, challenge, asked, identifier);
  const pending: PendingPurchase = {
    flow: 'direct',
    kind: 'deposit',
    identifier,
    baseUrl,
    method: 'POST',
    target: DEPOSIT_TARGET,
    headers: { 'content-type': 'application/json', 'payment-signature': header },
    body,
    maxMicroUsd: String(amountMicroUsd),
    expiresAt: validBefore,
  };
  await onPending?.(pending);
  return deposited(await pursueDeposit(pending, service, { signal, patienceMs, isRepetition: false }));
}

/** @throws SpeechgateError when it is not credited */
export function deposited(end: End<Deposit>): Deposit {
  if (end.outcome === 'bought') return end.bought;
  throw end.error;
}

/** Asks until the deposit is credited, or was refused. */
export async function pursueDeposit(
  pending: PendingPurchase,
  service: Service,
  { signal, patienceMs = PATIENCE_MS, isRepetition = true }: DepositOptions & { readonly isRepetition?: boolean },
): Promise<End<Deposit>> {
  const asked = { pending, service, signal, isRepetition, read: readDeposit };
  return pursue({ ...asked, patienceMs, answerMs: ANSWER_MS });
}
