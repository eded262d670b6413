import type { Address, Hex } from 'viem';
import { domainSeparator, type Eip712Domain, signingDigest } from '../../src/lib/wallet-signature.ts';
import {
  hashPrepaidRequest,
  signedBalanceRead,
  signedRequestOf,
} from '../../src/payments/prepaid/prepaid-credential.ts';
import type { Call } from '../../test/support/gateway.ts';
import { signDigest } from './sign-digest.ts';

export interface PrepaidTerms {
  readonly nonce: string;
  /** Unix seconds. */
  readonly expiry: bigint;
  readonly max: bigint;
}

/** A call with the prepaid headers of a wallet. */
export type PrepaidSigner = (path: string, call: Call, terms: PrepaidTerms) => Call;

/**
 * Signs as the wallet of this key, twenty times faster than viem: for tests that sign by the thousand. The digest is the
 * project's own, which test/payments/x402/signatures.test.ts holds against viem's.
 */
export function prepaidSigner(account: Address, privateKey: Hex, domain: Eip712Domain): PrepaidSigner {
  const key = Buffer.from(privateKey.slice(2), 'hex');
  const separator = domainSeparator(domain);
  return (path, call, { nonce, expiry, max }) => {
    const request = { method: call.method ?? 'GET', url: path, bytes: Buffer.from(call.body ?? '') };
    const signed = path.startsWith('/x402/accounts/') ? signedBalanceRead(request) : signedRequestOf(request);
    const hash = hashPrepaidRequest({ account, nonce, expiry, maxAmountMicroUsd: max, ...signed });
    return {
      ...call,
      headers: {
        ...call.headers,
        'x-x402-account': account,
        'x-x402-nonce': nonce,
        'x-x402-expiry': String(expiry),
        'x-x402-max-amount': String(max),
        'x-x402-signature': signDigest(signingDigest(separator, hash), key),
      },
    };
  };
}
