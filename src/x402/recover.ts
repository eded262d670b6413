import secp256k1 from 'secp256k1';
import { keccak256 } from 'viem';
import type { Hex } from './envelope.ts';

/** Half the order of the curve; a signature with a larger s is the malleated twin of another one (EIP-2). */
const HALF_ORDER = Buffer.from('7fffffffffffffffffffffffffffffff5d576e7357a4501ddfe92f46681b20a0', 'hex');
const SIGNATURE = /^0x[0-9a-fA-F]{130}$/;

/**
 * The 20 bytes of the address whose key made the signature. Undefined for everything but the 65 bytes r, s, v of an
 * externally owned account, with a low s and v 27 or 28.
 */
export function recoverAddress(digest: Uint8Array, signature: Hex): Buffer | undefined {
  if (!SIGNATURE.test(signature)) return undefined;
  const bytes = Buffer.from(signature.slice(2), 'hex');
  const recoveryId = (bytes[64] as number) - 27;
  if ((recoveryId !== 0 && recoveryId !== 1) || bytes.subarray(32, 64).compare(HALF_ORDER) > 0) return undefined;
  try {
    const key = secp256k1.ecdsaRecover(bytes.subarray(0, 64), recoveryId, digest, false);
    return Buffer.from(keccak256(key.subarray(1), 'bytes').subarray(12));
  } catch {
    return undefined;
  }
}
