import type { Api } from './api.ts';
import { UntrustedError } from './errors.ts';
import { read } from './reading.ts';
import {
  type FollowedTrust,
  isSameKey,
  type Metadata,
  type PinnedKey,
  type TrustedKey,
  timeOf,
  verifyMetadata,
} from './verify-metadata.ts';
import { unlessAborted } from './waiting.ts';

/** Is given what is trusted by now, after each reading of newer metadata. Waited for. */
export type TrustListener = (followed: FollowedTrust) => Promise<void>;

/** The service's signed metadata, verified under keys that were pinned, and kept until it expires. */
export class TrustedMetadata {
  readonly #api: Api;
  readonly #origin: string;
  readonly #onFollowed: TrustListener | undefined;
  #keys: readonly TrustedKey[];
  #kept: Metadata | undefined;
  /** The newest that was seen, also by an earlier client. */
  #newest: Metadata | undefined;
  #reading: Promise<Metadata> | undefined;

  constructor(api: Api, origin: string, trust: readonly PinnedKey[] | FollowedTrust, onFollowed?: TrustListener) {
    this.#api = api;
    this.#origin = origin;
    this.#onFollowed = onFollowed;
    this.#newest = 'metadata' in trust ? trust.metadata : undefined;
    this.#keys = ('metadata' in trust ? trust.keys : trust).map(readKey);
  }

  /** The keys that are trusted by now: rotations were followed. To be pinned the next time. */
  get keys(): readonly PinnedKey[] {
    return this.#keys.map(writeKey);
  }

  /** What holds now. @throws UntrustedError when what the service shows is not vouched for */
  async read(signal?: AbortSignal): Promise<Metadata> {
    const kept = this.#kept;
    return kept && Date.now() < timeOf(kept.validity.validUntil) ? kept : this.refresh(signal);
  }

  /**
   * What a check makes of the metadata. Where it does not hold under what is kept, it is tried under what the service shows
   * now: payee or prices may have changed since.
   * @throws UntrustedError when it holds under neither
   */
  async holds<T>(check: (metadata: Metadata) => T, signal?: AbortSignal): Promise<T> {
    try {
      return check(await this.read(signal));
    } catch (error) {
      if (!(error instanceof UntrustedError)) throw error;
      return check(await this.refresh(signal));
    }
  }

  /** The metadata as the service shows it now. Callers at the same time share one reading. */
  refresh(signal?: AbortSignal): Promise<Metadata> {
    this.#reading ??= this.#readAnew().finally(() => {
      this.#reading = undefined;
    });
    return unlessAborted(this.#reading, signal);
  }

  async #readAnew(): Promise<Metadata> {
    const data = await read(undefined, {}, (signal) => this.#api.GET('/.well-known/x402-service-metadata', { signal }));
    const now = Date.now();
    const metadata = await verifyMetadata(data, { keys: this.#keys, origin: this.#origin, now });
    const newest = this.#newest;
    const isOlder = newest !== undefined && timeOf(metadata.validity.issuedAt) < timeOf(newest.validity.issuedAt);
    const signer = this.#keys.find(({ keyId }) => keyId === data.signature.keyId);
    if (isOlder || signer?.isRetiring) {
      // Another replica's, which signed a little earlier or has not rotated yet; or one of old times. What is known holds.
      if (!newest || now >= timeOf(newest.validity.validUntil)) {
        throw new UntrustedError('replayed', 'The metadata is from before what the service has shown already.');
      }
      this.#kept = newest;
      return newest;
    }
    this.#keys = this.#follow(metadata);
    this.#newest = metadata;
    this.#kept = metadata;
    await this.#onFollowed?.({ keys: this.keys, metadata });
    return metadata;
  }

  /**
   * The keys that are trusted from now on: those that the metadata lists, since a trusted key vouches for it. One that it
   * lists no more was withdrawn. An end that is known is never put off.
   */
  #follow({ trust }: Metadata): readonly TrustedKey[] {
    return trust.keys
      .filter(({ algorithm, publicKeyJwk: { kty, crv } }) => algorithm === 'ES256' && kty === 'EC' && crv === 'P-256')
      .map(({ keyId, publicKeyJwk, status, validFrom, validUntil }) => {
        const known = this.#keys.find((known) => known.keyId === keyId);
        const told = validUntil === null ? Number.POSITIVE_INFINITY : timeOf(validUntil);
        const key: TrustedKey = {
          keyId,
          publicKeyJwk,
          validFrom: timeOf(validFrom),
          validUntil: Math.min(told, known?.validUntil ?? Number.POSITIVE_INFINITY),
          isRetiring: status === 'retiring',
        };
        if (known && !isSameKey(known, key)) {
          throw new UntrustedError('wrong_key', `The metadata names another key ${keyId} than the trusted one.`);
        }
        return key;
      });
  }
}

const readKey = ({ keyId, publicKeyJwk, validFrom, validUntil, isRetiring = false }: PinnedKey): TrustedKey => ({
  keyId,
  publicKeyJwk,
  validFrom: validFrom === undefined ? Number.NEGATIVE_INFINITY : timeOf(validFrom),
  validUntil: validUntil === undefined ? Number.POSITIVE_INFINITY : timeOf(validUntil),
  isRetiring,
});

const writeKey = ({ keyId, publicKeyJwk, validFrom, validUntil, isRetiring }: TrustedKey): PinnedKey => ({
  keyId,
  publicKeyJwk,
  ...(validFrom !== Number.NEGATIVE_INFINITY && { validFrom: new Date(validFrom).toISOString() }),
  ...(validUntil !== Number.POSITIVE_INFINITY && { validUntil: new Date(validUntil).toISOString() }),
  ...(isRetiring && { isRetiring }),
});
