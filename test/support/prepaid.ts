import { randomUUID } from 'node:crypto';
import { type Address, type Hex, hashTypedData, keccak256, type LocalAccount } from 'viem';
import { canonicalQuery } from '../../src/x402/canonical-query.ts';
import type { PrepaidRequest } from '../../src/x402/prepaid-digest.ts';
import type { Call } from './gateway.ts';

export const PREPAID_TYPES = {
  PrepaidRequest: [
    { name: 'account', type: 'address' },
    { name: 'method', type: 'string' },
    { name: 'path', type: 'string' },
    { name: 'bodyHash', type: 'bytes32' },
    { name: 'maxAmountMicroUsd', type: 'uint256' },
    { name: 'nonce', type: 'string' },
    { name: 'expiry', type: 'uint256' },
  ],
} as const;

export const domainOf = (payTo: Address, name = 'speechgate-Prepaid', chainId = 8453) =>
  ({ name, version: '1', chainId, verifyingContract: payTo }) as const;

export const hashWithViem = (
  domain: ReturnType<typeof domainOf>,
  request: Omit<PrepaidRequest, 'bodyHash'> & { bodyHash: Hex },
): Hex => hashTypedData({ domain, types: PREPAID_TYPES, primaryType: 'PrepaidRequest', message: request });

/** The call with the prepaid headers of this wallet, signed by viem. */
export async function withCredential(
  wallet: LocalAccount,
  domain: ReturnType<typeof domainOf>,
  path: string,
  call: Call,
  terms: { nonce?: string; expiry?: bigint; max?: bigint } = {},
): Promise<Call> {
  const { nonce = randomUUID(), expiry = BigInt(Math.floor(Date.now() / 1000) + 100), max = 1_000_000n } = terms;
  const method = call.method ?? 'GET';
  const body = call.json === undefined ? (call.body ?? '') : JSON.stringify(call.json);
  const isBalance = path.startsWith('/x402/accounts/');
  const signed = method === 'POST' ? Buffer.from(body) : Buffer.from(isBalance ? '' : canonicalQuery(path));
  const signature = await wallet.signTypedData({
    domain,
    types: PREPAID_TYPES,
    primaryType: 'PrepaidRequest',
    message: {
      account: wallet.address,
      method,
      path: path.split('?')[0] as string,
      bodyHash: keccak256(signed),
      maxAmountMicroUsd: max,
      nonce,
      expiry,
    },
  });
  return {
    ...call,
    headers: {
      ...call.headers,
      'x-x402-account': wallet.address,
      'x-x402-nonce': nonce,
      'x-x402-expiry': String(expiry),
      'x-x402-max-amount': String(max),
      'x-x402-signature': signature,
    },
  };
}
