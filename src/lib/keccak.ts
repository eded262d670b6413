import { createKeccak } from 'hash-wasm';

const hasher = await createKeccak(256);

/** Ethereum's keccak-256, 32 bytes; not the SHA3-256 of node:crypto. */
export const keccak256 = (bytes: Uint8Array): Uint8Array => hasher.init().update(bytes).digest('binary');

/** The address with the checksum of EIP-55. viem's own function would load hundreds of modules. */
export function checksumAddress(address: string): `0x${string}` {
  const digits = address.slice(2).toLowerCase();
  const hash = Buffer.from(keccak256(Buffer.from(digits))).toString('hex');
  const cased = [...digits].map((digit, index) => ((hash[index] as string) >= '8' ? digit.toUpperCase() : digit));
  return `0x${cased.join('')}`;
}
