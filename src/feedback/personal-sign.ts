import { keccak256 } from '../crypto/keccak.ts';
import { recoverAddress } from '../crypto/wallet-signature.ts';

/** The address, in lower case, that made the `personal_sign` signature (EIP-191, version 0x45); undefined for none. */
export function recoverPersonalSigner(message: string, signature: string): string | undefined {
  const bytes = Buffer.from(message);
  const digest = keccak256(Buffer.concat([Buffer.from(`\x19Ethereum Signed Message:\n${bytes.length}`), bytes]));
  return recoverAddress(digest, signature);
}
