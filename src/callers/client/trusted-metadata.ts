import type { SignedServiceMetadata } from '../../contract/types.ts';
import { canonicalize } from '../../lib/canonical-json.ts';
import { type Api, readJson, type Wire } from './api.ts';
import { decodeBase64 } from './digest.ts';
import { SpeechgateError, UntrustedError } from './errors.ts';
import { unlessAborted } from './waiting.ts';

/** A key that the operator gave you by another channel than the service. */
export interface PinnedKey {
  readonly keyId: string;
  readonly publicKeyJwk: { readonly kty: string; readonly crv: string; readonly x: string; readonly y: string };
  /** RFC 3339. No start if omitted. */
  readonly validFrom?: string;
  /** RFC 3339. Never expires if omitted. */
  readonly validUntil?: string;
  /** Replaced by another key; it signs nothing new. */
  readonly isRetiring?: boolean;
}

export type Metadata = Wire<SignedServiceMetadata['payload']>;

/** The trusted keys after rotations, and the newest verified metadata. Plain JSON. */
export interface FollowedTrust {
  readonly keys: readonly PinnedKey[];
  readonly metadata: Metadata;
}

/** Awaited each time newer metadata was verified. */
export type TrustListener = (followed: FollowedTrust) => Promise<void>;

const CLOCK_LEEWAY_MS = 60_000;
/** The service signs for less than this. */
const MAX_VALIDITY_MS = 86_400_000;

/**
 * Verifies the service's metadata with the pinned keys, and caches it until it expires. Network and payees are trusted
 * only from it, later keys only if a trusted key signed them (R37).
 */
export class TrustedMetadata {
  readonly #api: Api;
  readonly #origin: string;
  readonly #onFollowed: TrustListener | undefined;
  #keys: readonly PinnedKey[];
  #cached: Metadata | undefined;
  #newest: Metadata | undefined;
  #reading: Promise<Metadata> | undefined;

  constructor(api: Api, origin: string, trust: readonly PinnedKey[] | FollowedTrust, onFollowed?: TrustListener) {
    this.#api = api;
    this.#origin = origin;
    this.#onFollowed = onFollowed;
    this.#newest = 'metadata' in trust ? trust.metadata : undefined;
    this.#keys = ('metadata' in trust ? trust.keys : trust).map(readPinned);
  }

  get keys(): readonly PinnedKey[] {
    return structuredClone(this.#keys);
  }

  async read(signal?: AbortSignal): Promise<Metadata> {
    const cached = this.#cached;
    return cached && Date.now() < timeOf(cached.validity.validUntil) ? cached : this.refresh(signal);
  }

  /** Runs the check, and once more on fresh metadata if it fails. @throws UntrustedError */
  async check<T>(check: (metadata: Metadata) => T, signal?: AbortSignal): Promise<T> {
    try {
      return check(await this.read(signal));
    } catch (error) {
      if (!(error instanceof UntrustedError)) throw error;
      return check(await this.refresh(signal));
    }
  }

  /** Concurrent callers share one request. */
  refresh(signal?: AbortSignal): Promise<Metadata> {
    this.#reading ??= this.#readAndVerify().finally(() => {
      this.#reading = undefined;
    });
    return unlessAborted(this.#reading, signal);
  }

  async #readAndVerify(): Promise<Metadata> {
    const data = await readJson(undefined, {}, (signal) =>
      this.#api.GET('/.well-known/x402-service-metadata', { signal }),
    );
    const now = Date.now();
    const { metadata, key } = await verifyMetadata(data, this.#keys, this.#origin, now);
    const newest = this.#newest;
    const isOlder = newest !== undefined && timeOf(metadata.validity.issuedAt) < timeOf(newest.validity.issuedAt);
    if (isOlder || key.isRetiring) {
      // From a replica that signed earlier or has not rotated yet, or a replay. A key is retiring only in metadata that is
      // newer than what it signed. Use the known metadata.
      if (!newest || now >= timeOf(newest.validity.validUntil)) {
        throw metadataError(
          'replayed',
          'The signed metadata is older than metadata that this client has already verified. Ask the operator of the service.',
        );
      }
      this.#cached = newest;
      return newest;
    }
    this.#keys = this.#follow(metadata);
    this.#newest = metadata;
    this.#cached = metadata;
    await this.#onFollowed?.({ keys: this.keys, metadata });
    return metadata;
  }

  /** Trusts the keys of metadata that a trusted key signed, and drops all others. A known expiry is never extended. */
  #follow({ trust }: Metadata): readonly PinnedKey[] {
    return trust.keys
      .filter(({ algorithm, publicKeyJwk: { kty, crv } }) => algorithm === 'ES256' && kty === 'EC' && crv === 'P-256')
      .map(({ keyId, publicKeyJwk, status, validFrom, validUntil }) => {
        const known = this.#keys.find((known) => known.keyId === keyId);
        const end = Math.min(endOf(validUntil), endOf(known?.validUntil));
        const key: PinnedKey = {
          keyId,
          publicKeyJwk,
          validFrom: new Date(timeOf(validFrom)).toISOString(),
          ...(end !== Number.POSITIVE_INFINITY && { validUntil: new Date(end).toISOString() }),
          ...(status === 'retiring' && { isRetiring: true }),
        };
        if (known && !isSameKey(known, key)) {
          throw metadataError(
            'wrong_key',
            `Key ${keyId} in the metadata differs from the trusted key with that id. Ask the operator of the service for its keys.`,
          );
        }
        return key;
      });
  }
}

async function verifyMetadata(document: unknown, keys: readonly PinnedKey[], origin: string, now: number) {
  const { payload, signature } = (document ?? {}) as Partial<SignedServiceMetadata>;
  if (typeof payload !== 'object' || payload === null || typeof signature?.value !== 'string') {
    throw metadataError(
      'malformed',
      'The metadata of the service lacks payload or signature.value. Ask the operator of the service.',
    );
  }
  if (signature.algorithm !== 'ES256' || signature.encoding !== 'base64url-ieee-p1363') {
    throw metadataError(
      'wrong_algorithm',
      'signature.algorithm and signature.encoding of the metadata must be ES256 and base64url-ieee-p1363. Ask the operator of the service.',
    );
  }
  const key = keys.find(({ keyId }) => keyId === signature.keyId);
  if (!key)
    throw metadataError(
      'wrong_key',
      `The metadata is signed with the key ${signature.keyId}, which is not a trusted key. Ask the operator of the service for its keys.`,
    );
  if (now >= endOf(key.validUntil)) {
    throw metadataError(
      'expired_key',
      `The trusted key ${key.keyId} has expired. Check the clock of this machine, or ask the operator of the service for a new key.`,
    );
  }
  if (key.validFrom !== undefined && now + CLOCK_LEEWAY_MS < timeOf(key.validFrom)) {
    throw metadataError(
      'early_key',
      `The trusted key ${key.keyId} is valid only from ${key.validFrom}. Check the clock of this machine.`,
    );
  }
  if (!(await isSigned(payload, signature.value, key))) {
    throw metadataError(
      'wrong_signature',
      `The signature of the metadata is not valid for the key ${key.keyId}. Ask the operator of the service.`,
    );
  }
  const metadata = payload as unknown as Metadata;
  checkService(metadata, origin);
  checkTime(metadata, now);
  checkSigner(metadata, key);
  return { metadata, key };
}

async function isSigned(payload: object, value: string, { publicKeyJwk }: PinnedKey): Promise<boolean> {
  const { kty, crv, x, y } = publicKeyJwk;
  const algorithm = { name: 'ECDSA', namedCurve: 'P-256', hash: 'SHA-256' };
  try {
    const key = await crypto.subtle.importKey('jwk', { kty, crv, x, y }, algorithm, false, ['verify']);
    const bytes = new TextEncoder().encode(canonicalize(payload));
    return await crypto.subtle.verify(algorithm, key, decodeBase64(value), bytes);
  } catch {
    return false;
  }
}

function checkService({ schemaVersion, service, protocol }: Metadata, origin: string): void {
  if (schemaVersion !== '1')
    throw metadataError(
      'wrong_version',
      `schemaVersion in the metadata is ${schemaVersion}, but this client supports only 1. Update the client.`,
    );
  if (service.origin !== origin) {
    throw metadataError(
      'wrong_origin',
      `service.origin in the metadata is ${service.origin}, but this client uses ${origin}. Check the service's URL, or ask its operator.`,
    );
  }
  if (service.metadataUrl !== `${origin}/.well-known/x402-service-metadata`) {
    throw metadataError(
      'wrong_origin',
      `service.metadataUrl in the metadata is ${service.metadataUrl}, but this client uses ${origin}. Check the service's URL, or ask its operator.`,
    );
  }
  if (protocol.name !== 'x402' || protocol.version !== 2 || protocol.scheme !== 'exact') {
    throw metadataError(
      'wrong_version',
      'protocol in the metadata is not x402 version 2 with the scheme exact. Update the client.',
    );
  }
}

function checkTime({ validity }: Metadata, now: number): void {
  const issuedAt = timeOf(validity.issuedAt);
  const validFrom = timeOf(validity.validFrom);
  const validUntil = timeOf(validity.validUntil);
  if (issuedAt > now + CLOCK_LEEWAY_MS || validFrom > now + CLOCK_LEEWAY_MS) {
    throw metadataError(
      'early',
      `The metadata is valid only from ${validity.validFrom}. Check the clock of this machine.`,
    );
  }
  if (validUntil <= now - CLOCK_LEEWAY_MS) {
    throw metadataError(
      'expired',
      `The metadata expired at ${validity.validUntil}. Check the clock of this machine, or ask the operator of the service.`,
    );
  }
  if (validUntil - issuedAt > MAX_VALIDITY_MS) {
    throw metadataError(
      'too_long',
      'The metadata is valid for more than a day: see validity.issuedAt and validity.validUntil. Ask the operator of the service.',
    );
  }
}

/** Requires the signing key to be listed as current, and to outlive the metadata. */
function checkSigner({ trust, validity }: Metadata, key: PinnedKey): void {
  const own = trust.keys.find(({ keyId }) => keyId === key.keyId);
  if (own?.status !== 'current' || !isSameKey(own, key)) {
    throw metadataError(
      'wrong_key',
      `Key ${key.keyId} signed the metadata, but trust.keys in it does not list this key as current. Ask the operator of the service.`,
    );
  }
  if (endOf(own.validUntil) < timeOf(validity.validUntil)) {
    throw metadataError(
      'expired_key',
      `Key ${key.keyId} expires before the metadata that it signed. Ask the operator of the service.`,
    );
  }
}

const isSameKey = (one: Pick<PinnedKey, 'publicKeyJwk'>, other: Pick<PinnedKey, 'publicKeyJwk'>): boolean =>
  (['kty', 'crv', 'x', 'y'] as const).every((name) => one.publicKeyJwk[name] === other.publicKeyJwk[name]);

/** Copies the key, so that callers can't change it later. @throws UntrustedError for an invalid time */
function readPinned(pinned: PinnedKey): PinnedKey {
  const { validFrom, validUntil } = pinned;
  if (validFrom !== undefined) timeOf(validFrom);
  if (validUntil !== undefined) timeOf(validUntil);
  return structuredClone(pinned);
}

const endOf = (validUntil: string | null | undefined): number =>
  validUntil == null ? Number.POSITIVE_INFINITY : timeOf(validUntil);

/** Unix milliseconds. @throws UntrustedError */
export function timeOf(text: string): number {
  const time = Date.parse(text);
  if (Number.isNaN(time)) {
    throw metadataError(
      'malformed',
      `${text} in a pinned key or in a response of the service is not an RFC 3339 time. Correct the key, or ask the operator of the service.`,
    );
  }
  return time;
}

const metadataError = (reason: string, message: string): UntrustedError =>
  new UntrustedError(reason, `${message} Nothing was signed.`);

export function requireMetadata(metadata: TrustedMetadata | undefined): TrustedMetadata {
  if (metadata) return metadata;
  throw new SpeechgateError(
    'The option `trust` is missing or empty. Pass the public keys that the operator gave you. Nothing was signed.',
  );
}
