import { createRequire } from 'node:module';
import type { Address } from '../../src/config/payees.ts';
import { keccak256 } from '../../src/lib/keccak.ts';

// The package has no types of its own, and those of the gateway leave key pairs out.
const { publicKeyCreate } = createRequire(import.meta.url)('secp256k1') as {
  publicKeyCreate(key: Uint8Array, compressed: boolean): Uint8Array;
};

export interface KeyedWallet {
  /** In lower case. */
  readonly address: Address;
  /** 32 bytes. */
  readonly key: Uint8Array;
}

/** The wallet of a key of 32 bytes. */
export function keyedWallet(key: Uint8Array): KeyedWallet {
  const publicKey = publicKeyCreate(key, false).subarray(1);
  return { key, address: `0x${Buffer.from(keccak256(publicKey)).toString('hex', 12)}` };
}
