import type { Address } from '../../src/config/payees.ts';
import { domainSeparator, type Eip712Domain, signingDigest } from '../../src/lib/wallet-signature.ts';
import { hashTransfer } from '../../src/payments/x402/transfer-proof.ts';
import type { KeyedWallet } from './keyed-wallet.ts';
import { signDigest } from './sign-digest.ts';

/** A challenge's parts that a payment repeats. */
export interface Challenge {
  readonly resource: object;
  readonly accepts: readonly [
    {
      readonly amount: string;
      readonly asset: Address;
      readonly payTo: Address;
      readonly extra: { readonly name: string; readonly version: string };
    },
  ];
  readonly extensions?: Readonly<Record<string, { readonly info: object }>>;
}

/** What makes a payment its own. */
export interface PaymentTerms {
  /** 32 bytes. */
  readonly nonce: Buffer;
  readonly identifier: string;
  /** Unix seconds. */
  readonly validBefore: bigint;
}

const IDENTIFIER = 'payment-identifier';

/** The domain's part of what is signed for a challenge's asset. */
export function separatorOf({ accepts: [{ asset, extra }] }: Challenge, chainId: number): Uint8Array {
  const domain: Eip712Domain = { name: extra.name, version: extra.version, chainId, verifyingContract: asset };
  return domainSeparator(domain);
}

/**
 * The PAYMENT-SIGNATURE header as the official client makes it: it repeats the challenge's offer and extensions. For
 * those that sign by the thousand.
 */
export function signedPayment(
  { resource, accepts: [accepted], extensions }: Challenge,
  { address, key }: KeyedWallet,
  separator: Uint8Array,
  { nonce, identifier, validBefore }: PaymentTerms,
): string {
  const value = BigInt(accepted.amount);
  const authorization = { from: address, to: accepted.payTo, value, validAfter: 0n, validBefore };
  const digest = signingDigest(separator, hashTransfer({ ...authorization, nonce }));
  const payload = {
    signature: signDigest(digest, key),
    authorization: {
      ...authorization,
      ...{ value: String(value), validAfter: '0', validBefore: String(validBefore) },
      nonce: `0x${nonce.toString('hex')}`,
    },
  };
  const payment = { x402Version: 2, resource, accepted, payload, extensions: withIdentifier(extensions, identifier) };
  return Buffer.from(JSON.stringify(payment)).toString('base64');
}

function withIdentifier(extensions: Challenge['extensions'], identifier: string): object | undefined {
  const asked = extensions?.[IDENTIFIER];
  if (!asked) return extensions;
  return { ...extensions, [IDENTIFIER]: { ...asked, info: { ...asked.info, id: identifier } } };
}
