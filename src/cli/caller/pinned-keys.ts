import type { PinnedKey } from '../../client/index.ts';

interface GivenKey {
  readonly keyId?: unknown;
  readonly kid?: unknown;
  readonly publicKeyJwk?: Readonly<Record<string, unknown>>;
}

/**
 * The public keys of a service as its operator gives them out: a JWK Set, or a list of `{ keyId, publicKeyJwk }` as in
 * the metadata. Private parts are left out. Undefined when the value is neither.
 */
export function readPinnedKeys(value: unknown): readonly PinnedKey[] | undefined {
  const list = Array.isArray(value) ? value : (value as { keys?: unknown } | null)?.keys;
  if (!Array.isArray(list) || list.length === 0) return undefined;
  const keys = list.map(readKey);
  return keys.every((key) => key !== undefined) ? keys : undefined;
}

function readKey(given: GivenKey | null): PinnedKey | undefined {
  const keyId = given?.keyId ?? given?.kid;
  const { kty, crv, x, y } = (given?.publicKeyJwk ?? given ?? {}) as Readonly<Record<string, unknown>>;
  if (typeof keyId !== 'string' || kty !== 'EC' || crv !== 'P-256') return undefined;
  return typeof x === 'string' && typeof y === 'string' ? { keyId, publicKeyJwk: { kty, crv, x, y } } : undefined;
}
