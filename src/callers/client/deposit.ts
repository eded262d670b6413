import type { X402DepositResponse } from '../../contract/types.ts';
import { type Shape, validated, type Wire } from './api.ts';
import { checkChallenge, readChallenge, signPayment } from './challenge.ts';
import type { Service, Wallet } from './payment-way.ts';
import type { PendingPurchase } from './pending-purchase.ts';
import { transactionOf } from './read-speech.ts';
import { type Reader, type Resolution, retryUntilResolved } from './retry-until-resolved.ts';
import { readRefusal } from './service-error.ts';
import { requireMetadata } from './trusted-metadata.ts';

export const DEPOSIT_TARGET = '/x402/deposit';
/** The service itself waits up to two minutes for the transfer's confirmations. */
const RESPONSE_TIMEOUT_MS = 180_000;
const TIMEOUT_MS = 300_000;

export interface Deposit {
  readonly address: string;
  readonly balanceMicroUsd: bigint;
  /** 0 when an earlier request was credited already. */
  readonly creditedMicroUsd: bigint;
  readonly alreadyCredited: boolean;
  readonly transaction: string | null;
}

interface DepositOptions {
  readonly signal: AbortSignal | undefined;
  readonly timeoutMs?: number | undefined;
}

const CREDITED: Shape = {
  address: 'string',
  balanceMicroUsd: 'amount',
  creditedMicroUsd: 'amount',
  alreadyCredited: 'boolean',
};

const readDeposit: Reader<Deposit> = async (paid) => {
  const { pending, response, body } = paid;
  if (!response.ok) return readRefusal(paid);
  const credited = validated((await new Response(body).json()) as Wire<X402DepositResponse>, CREDITED);
  const deposit: Deposit = {
    address: credited.address,
    balanceMicroUsd: BigInt(credited.balanceMicroUsd),
    creditedMicroUsd: BigInt(credited.creditedMicroUsd),
    alreadyCredited: credited.alreadyCredited,
    transaction: transactionOf(response),
  };
  return { outcome: 'bought', bought: deposit, chargedMicroUsd: BigInt(pending.maxMicroUsd) };
};

export async function deposit(
  wallet: Wallet,
  amountMicroUsd: bigint,
  service: Service,
  options: DepositOptions & { readonly onPending?: ((pending: PendingPurchase) => Promise<void>) | undefined },
): Promise<Deposit> {
  const { signal, onPending } = options;
  const metadata = requireMetadata(service.metadata);
  const body = `{"amountMicroUsd":${amountMicroUsd}}`;
  const challenge = await readChallenge(signal, (signal) =>
    service.api.POST(DEPOSIT_TARGET, { body: { amountMicroUsd: 0 }, bodySerializer: () => body, signal }),
  );
  const requirements = await metadata.check(
    (metadata) => checkChallenge(challenge, { metadata, amountMicroUsd, path: DEPOSIT_TARGET }),
    signal,
  );
  signal?.throwIfAborted();
  const request = { kind: 'deposit' as const, baseUrl: service.baseUrl, target: DEPOSIT_TARGET, body };
  const pending = await signPayment(wallet, challenge, requirements, request);
  await onPending?.(pending);
  return depositOf(await resolveDeposit(pending, service, options, false));
}

export function depositOf(resolution: Resolution<Deposit>): Deposit {
  if (resolution.outcome === 'bought') return resolution.bought;
  throw resolution.error;
}

export const resolveDeposit = (
  pending: PendingPurchase,
  service: Service,
  { signal, timeoutMs = TIMEOUT_MS }: DepositOptions,
  isRetry = true,
): Promise<Resolution<Deposit>> =>
  retryUntilResolved({
    pending,
    service,
    signal,
    isRetry,
    timeoutMs,
    read: readDeposit,
    responseTimeoutMs: RESPONSE_TIMEOUT_MS,
  });
