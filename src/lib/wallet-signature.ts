import secp256k1 from 'secp256k1';
import { keccak256 } from './keccak.ts';

const SIGNATURE = /^0x[0-9a-fA-F]{130}$/;
const COMPACT = /^0x[0-9a-fA-F]{128}$/;
/** Half of the order of secp256k1 (SEC 2, 2.4.1). With an s above it, a signature has a second spelling. */
const HALF_ORDER = Buffer.from('7fffffffffffffffffffffffffffffff5d576e7357a4501ddfe92f46681b20a0', 'hex');

/** What is wrong with a signature in the compact form of EIP-2098; undefined for all others. */
export const compactFault = (field: string, signature: unknown): string | undefined =>
  typeof signature === 'string' && COMPACT.test(signature)
    ? `${field} has 64 bytes, the compact form of EIP-2098. Send the 65 bytes r, s and v.`
    : undefined;

export function withFullV<S extends string>(signature: S): S {
  if (!SIGNATURE.test(signature) || !/0[01]$/.test(signature)) return signature;
  return `${signature.slice(0, -2)}${signature.endsWith('0') ? '1b' : '1c'}` as S;
}

/**
 * Recovers the signer by secp256k1, in lower case (R31). Returns undefined for high s (EIP-2) and contract signatures
 * (EIP-1271).
 */
export function recoverAddress(digest: Uint8Array, signature: string): string | undefined {
  if (!SIGNATURE.test(signature)) return undefined;
  const bytes = Buffer.from(signature.slice(2), 'hex');
  const v = bytes[64] as number;
  const recoveryId = v >= 27 ? v - 27 : v;
  if (recoveryId > 1 || bytes.subarray(32, 64).compare(HALF_ORDER) > 0) return undefined;
  try {
    const publicKey = secp256k1.ecdsaRecover(bytes.subarray(0, 64), recoveryId, digest, false);
    return `0x${Buffer.from(keccak256(publicKey.subarray(1))).toString('hex', 12)}`;
  } catch {
    return undefined;
  }
}
