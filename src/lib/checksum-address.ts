import { keccak256 } from './keccak.ts';

/** The address with the checksum of EIP-55. viem's own function would load hundreds of modules. */
export function checksumAddress(address: string): `0x${string}` {
  const digits = address.slice(2).toLowerCase();
  const hash = Buffer.from(keccak256(Buffer.from(digits))).toString('hex');
  const cased = [...digits].map((digit, index) => ((hash[index] as string) >= '8' ? digit.toUpperCase() : digit));
  return `0x${cased.join('')}`;
}
