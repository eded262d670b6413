import type { X402DepositResponse } from '../../contract/types.ts';
import { type Shape, validated, type Wire } from './api.ts';
import { type DepositOptions, resolveDeposit } from './buy.ts';
import { checkChallenge, readChallenge, signPayment } from './challenge.ts';
import { transactionOf } from './direct-x402.ts';
import type { Service, Wallet } from './payment-way.ts';
import { DEPOSIT_TARGET, type PendingPurchase } from './pending-purchase.ts';
import type { Reader, Resolution } from './retry-until-resolved.ts';
import { readRefusal } from './service-error.ts';
import { requireMetadata } from './trusted-metadata.ts';

export interface Deposit {
  readonly address: string;
  readonly balanceMicroUsd: bigint;
  /** 0 when an earlier request was credited already. */
  readonly creditedMicroUsd: bigint;
  readonly alreadyCredited: boolean;
  readonly transaction: string | null;
}

const CREDITED: Shape = {
  address: 'string',
  balanceMicroUsd: 'amount',
  creditedMicroUsd: 'amount',
  alreadyCredited: 'boolean',
};

export const readDeposit: Reader<Deposit> = async (paid) => {
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
