import { calculateJwkThumbprint } from 'jose';
import type { PinnedKey } from '../../client/index.ts';
import { UsageError } from '../usage-error.ts';

/** The SHA-256 thumbprint of a public key (RFC 7638), in base64url, as operators give it out. */
export const fingerprintOf = ({ publicKeyJwk }: PinnedKey): Promise<string> => calculateJwkThumbprint(publicKeyJwk);

/**
 * The key with this fingerprint among those that the service shows. Nothing but the fingerprint vouches for it.
 * @throws UsageError when it shows no such key
 */
export async function keyOfFingerprint(shown: readonly PinnedKey[], fingerprint: string): Promise<PinnedKey> {
  for (const key of shown) if ((await fingerprintOf(key)) === fingerprint) return key;
  throw new UsageError(`--fingerprint ${fingerprint}: the service shows no key with it. Ask its operator.`);
}
