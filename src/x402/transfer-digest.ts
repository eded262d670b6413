import { domainSeparator, signingDigest, structHasher } from '../crypto/eip712.ts';
import { recoverAddress } from '../crypto/wallet-signature.ts';
import type { PaymentEnvelope } from './envelope.ts';
import type { Asset } from './network.ts';

/** The struct hash of USDC's `TransferWithAuthorization` (EIP-3009). */
export const hashTransfer = structHasher('TransferWithAuthorization', [
  { name: 'from', type: 'address' },
  { name: 'to', type: 'address' },
  { name: 'value', type: 'uint256' },
  { name: 'validAfter', type: 'uint256' },
  { name: 'validBefore', type: 'uint256' },
  { name: 'nonce', type: 'bytes32' },
] as const);

/** The last word of a signature of a contract that is not deployed yet: the signature says how to deploy it (ERC-6492). */
const UNDEPLOYED = /(?:6492){16}$/;

export const isOfUndeployed = (signature: string): boolean => UNDEPLOYED.test(signature);

/**
 * Whether the payment was signed by the key of its payer's address (EIP-3009, EIP-712). False for signatures of smart
 * accounts, of which only the account itself can tell whether they are its own.
 */
export function isSignedByPayer(
  { authorization, signature }: Pick<PaymentEnvelope, 'authorization' | 'signature'>,
  { name, version, chainId, address }: Asset,
): boolean {
  const nonce = Buffer.from(authorization.nonce.slice(2), 'hex');
  const digest = signingDigest(
    domainSeparator({ name, version, chainId, verifyingContract: address }),
    hashTransfer({ ...authorization, nonce }),
  );
  return recoverAddress(digest, signature) === authorization.from;
}
