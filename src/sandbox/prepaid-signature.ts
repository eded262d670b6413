import type { LocalAccount } from 'viem';
import { type PrepaidCall as SignedCall, signPrepaid as sign } from '../client/sign-prepaid.ts';
import type { SignedServiceMetadata } from '../contract/types.ts';

/** The most that one request of the sandbox's programs may cost: 1 USD. */
const MAX_AMOUNT_MICRO_USD = 1_000_000n;

/** What a service publishes about itself. */
export type Metadata = SignedServiceMetadata['payload'];

/** Reads the local sandbox's metadata. With real money, verify its signature under a key that was pinned before. */
export async function readMetadata(baseUrl: string): Promise<Metadata> {
  const response = await fetch(`${baseUrl}/.well-known/x402-service-metadata`);
  return ((await response.json()) as SignedServiceMetadata).payload;
}

/** A request to a prepaid endpoint; a GET has no body. */
export interface PrepaidCall extends Pick<SignedCall, 'target'> {
  readonly method: string;
  readonly body?: string | undefined;
}

/** The five headers that pay for a request from the wallet's balance, good once and for less than two minutes. */
export async function signPrepaid(
  wallet: LocalAccount,
  metadata: Metadata,
  { method, target, body = '' }: PrepaidCall,
): Promise<Readonly<Record<string, string>>> {
  const call = { method: method as SignedCall['method'], target, body, maxMicroUsd: MAX_AMOUNT_MICRO_USD };
  return (await sign(wallet, metadata, call)).headers;
}
