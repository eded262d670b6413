import type { Address } from 'viem';
import { keccak256, toHex } from 'viem/utils';
import { canonicalQuery } from '../x402/canonical-query.ts';
import { PREPAID_TYPES } from '../x402/prepaid-types.ts';
import { currentPayee } from './check-challenge.ts';
import { UntrustedError } from './errors.ts';
import type { Wallet } from './payment-way.ts';
import type { Metadata } from './verify-metadata.ts';

/** The headers, in the order in which their values are signed below. */
const HEADERS = ['x-x402-account', 'x-x402-nonce', 'x-x402-expiry', 'x-x402-max-amount', 'x-x402-signature'];
/** Seconds that a signature is valid: its lifetime, less what the caller's clock may be ahead. */
const LIFETIME_SECONDS = 100;

/** A request as it will be sent. */
export interface PrepaidCall {
  readonly method: 'GET' | 'POST';
  /** Path and query. */
  readonly target: string;
  /** Empty for a GET. */
  readonly body: string;
  readonly maxMicroUsd: bigint;
}

/** The headers that pay for a request from the wallet's balance, good once. */
export interface PrepaidSignature {
  readonly headers: Readonly<Record<string, string>>;
  readonly nonce: string;
  /** Unix seconds. */
  readonly expiry: number;
}

/** Signs a request as docs/prepaid.md says. @throws UntrustedError when the metadata wants something else to be signed */
export async function signPrepaid(wallet: Wallet, metadata: Metadata, call: PrepaidCall): Promise<PrepaidSignature> {
  const { scheme, primaryType, domainName, domainVersion, chainId, headers } = metadata.prepaid.authentication;
  if (scheme !== 'eip712' || primaryType !== 'PrepaidRequest' || headers.join() !== HEADERS.join()) {
    throw new UntrustedError('wrong_version', 'The service wants prepaid requests to be signed in another way.');
  }
  if (metadata.payment.network !== `eip155:${chainId}`) {
    throw new UntrustedError('wrong_network', `Prepaid requests are signed for the chain ${chainId}.`);
  }
  const nonce = crypto.randomUUID();
  const expiry = Math.floor(Date.now() / 1000) + LIFETIME_SECONDS;
  const message = {
    account: wallet.address,
    method: call.method,
    path: call.target.split('?', 1)[0] as string,
    bodyHash: keccak256(toHex(call.method === 'POST' ? call.body : canonicalQuery(call.target))),
    maxAmountMicroUsd: call.maxMicroUsd,
    nonce,
    expiry: BigInt(expiry),
  };
  const signature = await wallet.signTypedData({
    domain: {
      name: domainName,
      version: domainVersion,
      chainId,
      verifyingContract: currentPayee(metadata) as Address,
    },
    types: PREPAID_TYPES,
    primaryType: 'PrepaidRequest',
    message,
  });
  const values = [message.account, nonce, expiry, call.maxMicroUsd, signature];
  return { headers: Object.fromEntries(HEADERS.map((name, at) => [name, String(values[at])])), nonce, expiry };
}
