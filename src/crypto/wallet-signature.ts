import secp256k1 from 'secp256k1';
import { keccak256 } from './keccak.ts';

const SIGNATURE = /^0x[0-9a-fA-F]{130}$/;
/** Half of the order of secp256k1 (SEC 2, 2.4.1). A signature's s above it is a second spelling of the same signature. */
const HALF_ORDER = Buffer.from('7fffffffffffffffffffffffffffffff5d576e7357a4501ddfe92f46681b20a0', 'hex');

/** The signature of a key with v 27 or 28, where some wallets write 0 or 1. Anything else is returned as it is. */
export function withFullV<S extends string>(signature: S): S {
  if (!SIGNATURE.test(signature) || !/0[01]$/.test(signature)) return signature;
  return `${signature.slice(0, -2)}${signature.endsWith('0') ? '1b' : '1c'}` as S;
}

/**
 * The address, in lower case, whose key made the signature over the digest; undefined when it is none. A signature is
 * 65 bytes in hexadecimal: r, s in the lower half of the order (EIP-2), and v, which is 27 or 28, or 0 or 1. That of a
 * contract (EIP-1271) is none.
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
