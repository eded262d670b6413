import { createPrivateKey, generateKeyPairSync, type JsonWebKey, type KeyObject, randomBytes } from 'node:crypto';
import { calculateJwkThumbprint } from 'jose';
import { ROTATION_STATUSES, type RotationStatus } from './payees.ts';

export interface SigningKey {
  readonly keyId: string;
  readonly status: RotationStatus;
  readonly validFrom: Date;
  readonly validUntil: Date | undefined;
  readonly privateKey: KeyObject;
  readonly publicJwk: { readonly x: string; readonly y: string };
}

interface StoredKey extends JsonWebKey {
  kid: string;
  status: RotationStatus;
  validFrom: string;
  validUntil: string | null;
}

export interface StoredKeys {
  keys: StoredKey[];
}

const RESTORE =
  'Restore the file from a backup, or move it away and create new keys with: speechgate keys. Callers who pinned the old keys must then pin the new ones.';

export class SigningKeysError extends Error {
  constructor(
    message: string,
    readonly fix = RESTORE,
  ) {
    super(message);
  }
}

/** Reads `SIGNING_KEYS_FILE`: a JWK Set of private P-256 keys with kid, status and dates (R37). Throws SigningKeysError. */
export function parseSigningKeys(text: string, now: Date): readonly SigningKey[] {
  const keys = readStoredKeys(text).keys.map(readKey);
  if (new Set(keys.map(({ keyId }) => keyId)).size !== keys.length)
    throw new SigningKeysError('has two keys with the same kid');
  const current = keys.filter(({ status }) => status === 'current');
  if (current.length !== 1)
    throw new SigningKeysError(`has ${current.length} keys with the status current instead of one`);
  const [{ validFrom, validUntil }] = current as [SigningKey];
  if (validFrom > now || (validUntil && validUntil <= now))
    throw new SigningKeysError('has a current key that is not valid now', 'Check the clock, or run: speechgate keys.');
  return keys;
}

export function readStoredKeys(text: string): StoredKeys {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    throw new SigningKeysError('is not JSON');
  }
  const keys = (value as { keys?: unknown } | null)?.keys;
  if (!Array.isArray(keys) || keys.length === 0) throw new SigningKeysError('is not a JWK Set with at least one key');
  return { keys };
}

function readKey(stored: StoredKey, index: number): SigningKey {
  const where = `at position ${index + 1}`;
  const { kid, status, kty, crv, x, y, d } = stored ?? {};
  if (typeof kid !== 'string' || !/^[\x21-\x7e]{1,100}$/.test(kid))
    throw new SigningKeysError(`has a key with an invalid kid ${where}`);
  if (!ROTATION_STATUSES.includes(status)) throw new SigningKeysError(`has a key with an invalid status ${where}`);
  if (kty !== 'EC' || crv !== 'P-256' || !x || !y || !d)
    throw new SigningKeysError(`has no private P-256 key ${where}`);
  const validFrom = readDate(stored.validFrom);
  const validUntil = stored.validUntil == null ? undefined : readDate(stored.validUntil);
  if (!validFrom || (stored.validUntil != null && !validUntil))
    throw new SigningKeysError(`has a key with invalid dates ${where}`);
  let privateKey: KeyObject;
  try {
    privateKey = createPrivateKey({ key: { kty, crv, x, y, d }, format: 'jwk' });
  } catch {
    throw new SigningKeysError(`has no private P-256 key ${where}`);
  }
  return { keyId: kid, status, validFrom, validUntil, privateKey, publicJwk: { x, y } };
}

export const publicKeyJwk = ({ keyId, publicJwk }: SigningKey) => ({
  kty: 'EC' as const,
  crv: 'P-256' as const,
  ...publicJwk,
  alg: 'ES256' as const,
  key_ops: ['verify' as const],
  ext: true as const,
  kid: keyId,
});

/** The public keys as the client's option `trust` and `--trust` take them. */
export const pinnedKeys = (keys: readonly SigningKey[]) =>
  keys.map(({ keyId, publicJwk, validUntil }) => ({
    keyId,
    publicKeyJwk: { kty: 'EC', crv: 'P-256', ...publicJwk },
    ...(validUntil && { validUntil }),
  }));

export const currentKey = (keys: readonly SigningKey[]): SigningKey =>
  keys.find(({ status }) => status === 'current') as SigningKey;

export const fingerprint = (key: SigningKey): Promise<string> => calculateJwkThumbprint(publicKeyJwk(key));

function readDate(text: unknown): Date | undefined {
  const date = typeof text === 'string' && /^\d{4}-\d{2}-\d{2}(T[\d:.]+Z)?$/.test(text) ? new Date(text) : undefined;
  return date && !Number.isNaN(date.getTime()) ? date : undefined;
}

/** A retired key stays published this long, so that metadata signed with it can be verified. */
const RETIRING_DAYS = 30;

/** Promotes next to current, retires current for RETIRING_DAYS, adds a next key and drops expired keys. */
export function rotateKeys(stored: StoredKeys | undefined, now: Date): StoredKeys {
  if (!stored) return { keys: [makeKey('current', now), makeKey('next', now)] };
  if (!stored.keys.some(({ status }) => status === 'next'))
    throw new SigningKeysError('has no key with the status "next", so there is no key to rotate to');
  const end = new Date(now.getTime() + RETIRING_DAYS * 86_400_000).toISOString();
  const rotated = stored.keys
    .filter(({ validUntil }) => validUntil == null || new Date(validUntil) > now)
    .map((key): StoredKey => {
      if (key.status === 'next') return { ...key, status: 'current' };
      return key.status === 'current' ? { ...key, status: 'retiring', validUntil: end } : key;
    });
  return { keys: [...rotated, makeKey('next', now)] };
}

function makeKey(status: RotationStatus, now: Date): StoredKey {
  const { privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  const kid = `${now.toISOString().slice(0, 10)}-${randomBytes(4).toString('hex')}`;
  return {
    ...privateKey.export({ format: 'jwk' }),
    kid,
    alg: 'ES256',
    use: 'sig',
    status,
    validFrom: now.toISOString(),
    validUntil: null,
  };
}

const DAY_MS = 86_400_000;
const WARN_MS = 30 * DAY_MS;
const ALARM_MS = 7 * DAY_MS;

/** Logs, now and daily, that the metadata signing key expires within 30 days. Returns a stop function. */
export function watchKeyExpiry(
  { keyId, validUntil }: Pick<SigningKey, 'keyId' | 'validUntil'>,
  log: Record<'warn' | 'error', (line: object, message: string) => void>,
): () => void {
  if (!validUntil) return () => {};
  const warn = () => {
    const leftMs = validUntil.getTime() - Date.now();
    if (leftMs > WARN_MS) return;
    log[leftMs > ALARM_MS ? 'warn' : 'error'](
      { keyId, validUntil: validUntil.toISOString() },
      'the metadata signing key expires at validUntil; from then on the metadata returns 503. Run speechgate keys, then restart the service',
    );
  };
  warn();
  const timer = setInterval(warn, DAY_MS).unref();
  return () => clearInterval(timer);
}
