import { createRequire } from 'node:module';
import type { Hex } from 'viem';

// The package has no types of its own, and those of the code under test leave signing out.
const { ecdsaSign } = createRequire(import.meta.url)('secp256k1') as {
  ecdsaSign(digest: Uint8Array, key: Uint8Array): { signature: Uint8Array; recid: number };
};

/** The signature of a 32-byte digest as wallets write it: r, s and v (27 or 28), 65 bytes. */
export function signDigest(digest: Uint8Array, key: Uint8Array): Hex {
  const { signature, recid } = ecdsaSign(digest, key);
  return `0x${Buffer.from(signature).toString('hex')}${(27 + recid).toString(16)}`;
}
