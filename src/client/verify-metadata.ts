import { base64url } from 'jose';
import type { SignedServiceMetadata } from '../contract/types.ts';
import { canonicalize } from '../lib/canonical-json.ts';
import type { Wire } from './api.ts';
import { UntrustedError } from './errors.ts';

/** A key of the operator that was got out of band: from the operator, never from the service itself. */
export interface PinnedKey {
  readonly keyId: string;
  readonly publicKeyJwk: { readonly kty: string; readonly crv: string; readonly x: string; readonly y: string };
  /** RFC 3339; valid since ever when it is left out. */
  readonly validFrom?: string;
  /** RFC 3339; without end when it is left out. */
  readonly validUntil?: string;
  /** Another key has taken its place: it signs nothing new. */
  readonly isRetiring?: boolean;
}

/** What verified metadata has taught: the keys that are trusted by now, and the newest metadata. It is plain JSON. */
export interface FollowedTrust {
  readonly keys: readonly PinnedKey[];
  readonly metadata: Metadata;
}

/** A key that is trusted. */
export interface TrustedKey extends Pick<PinnedKey, 'keyId' | 'publicKeyJwk'> {
  /** Unix milliseconds. */
  readonly validFrom: number;
  readonly validUntil: number;
  /** By the word of the key that has taken its place: it signs nothing new. */
  readonly isRetiring: boolean;
}

export type Metadata = Wire<SignedServiceMetadata['payload']>;

/** How far the caller's clock and the service's may be apart, in milliseconds. */
const CLOCK_LEEWAY_MS = 60_000;
/** Longer than the service ever signs for: what claims more is not taken. */
const MOST_VALIDITY_MS = 86_400_000;

/**
 * The payload of signed metadata, once everything that can be told of it by itself holds: a trusted key signed it (ES256
 * over its canonical JSON, RFC 8785), it is of this service, and valid now.
 * @param keys the ones that are trusted already
 * @param origin of the service
 * @param now Unix milliseconds
 * @throws UntrustedError
 */
export async function verifyMetadata(
  document: unknown,
  { keys, origin, now }: { readonly keys: readonly TrustedKey[]; readonly origin: string; readonly now: number },
): Promise<Metadata> {
  const { payload, signature } = (document ?? {}) as Partial<SignedServiceMetadata>;
  if (typeof payload !== 'object' || payload === null || typeof signature?.value !== 'string') {
    throw new UntrustedError('malformed', 'The metadata has no signed payload.');
  }
  if (signature.algorithm !== 'ES256' || signature.encoding !== 'base64url-ieee-p1363') {
    throw new UntrustedError('wrong_algorithm', 'The metadata is not signed by ES256.');
  }
  const key = keys.find(({ keyId }) => keyId === signature.keyId);
  if (!key)
    throw new UntrustedError('wrong_key', `The metadata is signed by ${signature.keyId}, which is not trusted.`);
  if (now >= key.validUntil) throw new UntrustedError('expired_key', `The key ${key.keyId} has expired.`);
  if (now + CLOCK_LEEWAY_MS < key.validFrom) {
    throw new UntrustedError('early_key', `The key ${key.keyId} is not valid yet.`);
  }
  if (!(await isSigned(payload, signature.value, key))) {
    throw new UntrustedError('wrong_signature', `The metadata's signature is not one of the key ${key.keyId}.`);
  }
  // From here on the operator's words: what is refused is another service's, another time's or another version's.
  const metadata = payload as unknown as Metadata;
  checkService(metadata, origin);
  checkTime(metadata, now);
  checkSigner(metadata, key);
  return metadata;
}

async function isSigned(payload: object, value: string, { publicKeyJwk }: TrustedKey): Promise<boolean> {
  const { kty, crv, x, y } = publicKeyJwk;
  const algorithm = { name: 'ECDSA', namedCurve: 'P-256', hash: 'SHA-256' };
  try {
    const key = await crypto.subtle.importKey('jwk', { kty, crv, x, y }, algorithm, false, ['verify']);
    const bytes = new TextEncoder().encode(canonicalize(payload));
    return await crypto.subtle.verify(algorithm, key, base64url.decode(value), bytes);
  } catch {
    return false;
  }
}

function checkService({ schemaVersion, service, protocol }: Metadata, origin: string): void {
  if (schemaVersion !== '1')
    throw new UntrustedError('wrong_version', `Metadata of version ${schemaVersion} is unknown.`);
  if (service.origin !== origin) {
    throw new UntrustedError('wrong_origin', `The metadata is that of ${service.origin}, not of ${origin}.`);
  }
  if (service.metadataUrl !== `${origin}/.well-known/x402-service-metadata`) {
    throw new UntrustedError('wrong_origin', `The metadata belongs to ${service.metadataUrl}.`);
  }
  if (protocol.name !== 'x402' || protocol.version !== 2 || protocol.scheme !== 'exact') {
    throw new UntrustedError('wrong_version', 'The metadata is of another payment protocol.');
  }
}

function checkTime({ validity }: Metadata, now: number): void {
  const issuedAt = timeOf(validity.issuedAt);
  const validFrom = timeOf(validity.validFrom);
  const validUntil = timeOf(validity.validUntil);
  if (issuedAt > now + CLOCK_LEEWAY_MS || validFrom > now + CLOCK_LEEWAY_MS) {
    throw new UntrustedError('early', 'The metadata is not valid yet. Is the clock right?');
  }
  if (validUntil <= now - CLOCK_LEEWAY_MS) {
    throw new UntrustedError('expired', 'The metadata has expired. Is the clock right?');
  }
  if (validUntil - issuedAt > MOST_VALIDITY_MS) {
    throw new UntrustedError('too_long', 'The metadata claims to be valid for more than a day.');
  }
}

/** Only the key that is current signs, and by its own word it has not ended. */
function checkSigner({ trust, validity }: Metadata, key: TrustedKey): void {
  const own = trust.keys.find(({ keyId }) => keyId === key.keyId);
  if (own?.status !== 'current' || !isSameKey(own, key)) {
    throw new UntrustedError('wrong_key', `The key ${key.keyId} is not the current one of this metadata.`);
  }
  if (own.validUntil !== null && timeOf(own.validUntil) < timeOf(validity.validUntil)) {
    throw new UntrustedError('expired_key', `The key ${key.keyId} ends before the metadata does.`);
  }
}

export const isSameKey = (one: Pick<PinnedKey, 'publicKeyJwk'>, other: Pick<PinnedKey, 'publicKeyJwk'>): boolean =>
  (['kty', 'crv', 'x', 'y'] as const).every((name) => one.publicKeyJwk[name] === other.publicKeyJwk[name]);

/** Unix milliseconds. @throws UntrustedError when it is no time */
export function timeOf(text: string): number {
  const time = Date.parse(text);
  if (Number.isNaN(time)) throw new UntrustedError('malformed', `${text} is no time.`);
  return time;
}
