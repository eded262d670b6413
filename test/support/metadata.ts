import { webcrypto } from 'node:crypto';
import type { SignedServiceMetadata } from '../../src/contract/types.ts';

/** RFC 8785 for the values that occur here (no number but small integers), written apart from the service's. */
function canonical(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(canonical).join(',')}]`;
  if (typeof value !== 'object' || value === null) return JSON.stringify(value);
  const members = Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1));
  return `{${members.map(([name, member]) => `${JSON.stringify(name)}:${canonical(member)}`).join(',')}}`;
}

/** Whether the key has signed the payload: ES256 by WebCrypto, as a client checks it. */
export async function isSignedBy(
  publicKey: webcrypto.JsonWebKey,
  { payload, signature }: SignedServiceMetadata,
): Promise<boolean> {
  const algorithm = { name: 'ECDSA', namedCurve: 'P-256', hash: 'SHA-256' };
  const key = await webcrypto.subtle.importKey('jwk', publicKey, algorithm, false, ['verify']);
  const value = Buffer.from(signature.value, 'base64url');
  return webcrypto.subtle.verify(algorithm, key, value, Buffer.from(canonical(payload)));
}
