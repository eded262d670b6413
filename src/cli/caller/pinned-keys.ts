import { readFile } from 'node:fs/promises';
import type { PinnedKey } from '../../client/index.ts';
import { UsageError } from '../usage-error.ts';

interface GivenKey {
  readonly keyId?: unknown;
  readonly kid?: unknown;
  readonly publicKeyJwk?: Readonly<Record<string, unknown>>;
  readonly validUntil?: unknown;
}

/**
 * The public keys of a service as its operator gives them out: a JWK Set, or a list of `{ keyId, publicKeyJwk }` as in
 * the metadata, each with its `validUntil` where it has one. Private parts are left out.
 * @param given the path of a file, or the JSON itself
 * @param name of the option or variable that has it
 * @throws UsageError
 */
export async function readPinnedKeys(given: string, name: string): Promise<readonly PinnedKey[]> {
  const isJson = /^[[{]/.test(given);
  const text = isJson ? given : await readFile(given, 'utf8').catch(() => undefined);
  if (text === undefined) throw new UsageError(`${name} names ${given}, which can't be read.`);
  const keys = keysOf(text);
  if (keys) return keys;
  throw new UsageError(
    `${name} takes public keys of type P-256: a JWK Set, or a list of keyId and publicKeyJwk; validUntil is RFC 3339.`,
  );
}

function keysOf(text: string): readonly PinnedKey[] | undefined {
  const value = parsed(text);
  const list = Array.isArray(value) ? value : (value as { keys?: unknown } | null | undefined)?.keys;
  if (!Array.isArray(list) || list.length === 0) return undefined;
  const keys = list.map(readKey);
  return keys.every((key) => key !== undefined) ? keys : undefined;
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

function readKey(given: GivenKey | null): PinnedKey | undefined {
  const keyId = given?.keyId ?? given?.kid;
  const { kty, crv, x, y } = (given?.publicKeyJwk ?? given ?? {}) as Readonly<Record<string, unknown>>;
  const validUntil = given?.validUntil ?? undefined;
  if (typeof keyId !== 'string' || kty !== 'EC' || crv !== 'P-256') return undefined;
  if (typeof x !== 'string' || typeof y !== 'string' || !isTime(validUntil)) return undefined;
  return { keyId, publicKeyJwk: { kty, crv, x, y }, ...(validUntil !== undefined && { validUntil }) };
}

const isTime = (value: unknown): value is string | undefined =>
  value === undefined || (typeof value === 'string' && !Number.isNaN(Date.parse(value)));
