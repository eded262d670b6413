import { randomUUID } from 'node:crypto';
import { type Address, keccak256, type LocalAccount, toHex } from 'viem';
import type { SignedServiceMetadata } from '../contract/types.ts';
import { canonicalQuery } from '../x402/canonical-query.ts';
import { PREPAID_TYPES } from '../x402/prepaid-types.ts';

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
export interface PrepaidCall {
  readonly method: string;
  /** Path and query. */
  readonly target: string;
  readonly body?: string | undefined;
}

/** The five headers that pay for a request from the wallet's balance, good once and for two minutes. */
export async function signPrepaid(
  wallet: LocalAccount,
  { prepaid, payment }: Metadata,
  { method, target, body = '' }: PrepaidCall,
): Promise<Record<string, string>> {
  const { domainName, domainVersion, chainId, primaryType, headers, signatureTtlSeconds } = prepaid.authentication;
  const payee = payment.payees.find(({ status }) => status === 'current');
  const message = {
    account: wallet.address,
    method,
    path: target.split('?', 1)[0] as string,
    bodyHash: keccak256(toHex(method === 'POST' ? body : canonicalQuery(target))),
    maxAmountMicroUsd: MAX_AMOUNT_MICRO_USD,
    nonce: randomUUID(),
    expiry: BigInt(Math.floor(Date.now() / 1000) + signatureTtlSeconds),
  };
  const signature = await wallet.signTypedData({
    domain: { name: domainName, version: domainVersion, chainId, verifyingContract: payee?.address as Address },
    types: PREPAID_TYPES,
    primaryType,
    message,
  });
  const values = [message.account, message.nonce, message.expiry, message.maxAmountMicroUsd, signature];
  return Object.fromEntries(headers.map((name, at) => [name, String(values[at])]));
}
