import type { Readable } from 'node:stream';
import type { S3Client, S3ClientConfig } from '@aws-sdk/client-s3';
import {
  type AudioStore,
  type ByteRange,
  checkKey,
  checkRange,
  type DatedAudio,
  type DatedKind,
  endedMinutes,
  isClockError,
  minuteOf,
  outOfRange,
  type StoredAudio,
  StoreError,
} from './audio-store.ts';
import { guardAgainstStall } from './stall-guard.ts';

/** One attempt until the response headers have arrived, and all attempts together. */
interface CallLimits {
  readonly attemptMs: number;
  readonly totalMs: number;
}

export interface S3Limits {
  readonly connectMs: number;
  readonly put: CallLimits;
  readonly other: CallLimits;
  readonly stallMs: number;
}

const DEFAULT_LIMITS: S3Limits = {
  connectMs: 3_000,
  put: { attemptMs: 25_000, totalMs: 60_000 },
  other: { attemptMs: 4_000, totalMs: 10_000 },
  stallMs: 20_000,
};
const MAX_ATTEMPTS = 3;

export interface S3Options {
  readonly bucket: string;
  readonly prefix: string;
  readonly endpoint: string | undefined;
  readonly limits?: S3Limits;
}

type Sdk = typeof import('@aws-sdk/client-s3');
type CallOptions = { abortSignal: AbortSignal; requestTimeout: number };

/** Objects `PREFIX/KEY` of S3 or a compatible server. The AWS SDK is loaded on first use; it finds credentials. */
export class S3AudioStore implements AudioStore {
  readonly #options: S3Options;
  readonly #limits: S3Limits;
  #connection: Promise<{ sdk: Sdk; client: S3Client }> | undefined;

  readonly dated = { x402: this.#datedAudio('x402'), prepaid: this.#datedAudio('prepaid') };

  constructor(options: S3Options) {
    this.#options = options;
    this.#limits = options.limits ?? DEFAULT_LIMITS;
  }

  async put(key: string, audio: Buffer, mimeType: string): Promise<void> {
    const input = { ...this.#locate(key), Body: audio, ContentType: mimeType };
    const { put } = this.#limits;
    await this.#call((sdk, client, options) => client.send(new sdk.PutObjectCommand(input), options), put);
  }

  async open(key: string, range?: ByteRange): Promise<StoredAudio | undefined> {
    if (range) checkRange(range, Number.POSITIVE_INFINITY);
    const input = { ...this.#locate(key), ...(range && { Range: `bytes=${range.start}-${range.end}` }) };
    try {
      const { Body, ContentLength, ContentRange } = await this.#call((sdk, client, options) =>
        client.send(new sdk.GetObjectCommand(input), options),
      );
      const body = Body as Readable;
      const size = range ? sizeIn(ContentRange, range) : ContentLength;
      const length = range && size !== undefined ? Math.min(range.end + 1, size) - range.start : size;
      if (!Number.isSafeInteger(size) || (ContentLength !== undefined && ContentLength !== length)) {
        body.destroy();
        const message = 'The bucket returned another range than the requested one, or no size.';
        throw new StoreError('unavailable', new Error(message));
      }
      return { size: size as number, stream: guardAgainstStall(body, this.#limits.stallMs) };
    } catch (error) {
      if (!(error instanceof StoreError && error.cause instanceof Error)) throw error;
      if (error.cause.name === 'NoSuchKey') return undefined;
      if (error.cause.name === 'InvalidRange') throw outOfRange();
      throw error;
    }
  }

  async delete(key: string): Promise<void> {
    const input = this.#locate(key);
    await this.#call((sdk, client, options) => client.send(new sdk.DeleteObjectCommand(input), options));
  }

  async close(): Promise<void> {
    (await this.#connection)?.client.destroy();
  }

  #datedAudio(kind: DatedKind): DatedAudio {
    const place = (key: string) => `${kind}/${minuteOf(key)}/${key}`;
    return {
      put: async (key, audio, mimeType) => this.put(place(key), audio, mimeType),
      open: async (key, range) => this.open(place(key), range),

      // One page has the first 1,000 minutes, whose numbers are as long as each other for centuries.
      minutes: async (before) => {
        const { Bucket, Key } = this.#locate(kind);
        const { CommonPrefixes = [] } = await this.#call((sdk, client, options) =>
          client.send(new sdk.ListObjectsV2Command({ Bucket, Prefix: `${Key}/`, Delimiter: '/' }), options),
        );
        return endedMinutes(
          CommonPrefixes.map(({ Prefix = '' }) => Prefix.slice(Key.length + 1, -1)),
          before,
        );
      },

      deleteMinute: async (minute) => {
        const { Bucket, Key } = this.#locate(`${kind}/${minute}`);
        for (let count = 0; ; ) {
          const { Contents = [] } = await this.#call((sdk, client, options) =>
            client.send(new sdk.ListObjectsV2Command({ Bucket, Prefix: `${Key}/` }), options),
          );
          if (Contents.length === 0) return count;
          const Objects = Contents.map(({ Key }) => ({ Key }));
          const { Errors: [failed] = [] } = await this.#call((sdk, client, options) =>
            client.send(new sdk.DeleteObjectsCommand({ Bucket, Delete: { Objects } }), options),
          );
          if (failed) throw new StoreError('unavailable', new Error(`${failed.Code}: ${failed.Message}`));
          count += Contents.length;
        }
      },
    };
  }

  #locate(key: string): { Bucket: string; Key: string } {
    checkKey(key);
    const { bucket, prefix } = this.#options;
    return { Bucket: bucket, Key: prefix ? `${prefix}/${key}` : key };
  }

  async #call<T>(
    send: (sdk: Sdk, client: S3Client, options: CallOptions) => Promise<T>,
    limits = this.#limits.other,
  ): Promise<T> {
    // AbortSignal.timeout() would also cut the body of a response that is already being read.
    const deadline = new AbortController();
    const timer = setTimeout(() => deadline.abort(), limits.totalMs);
    try {
      this.#connection ??= this.#connect();
      const { sdk, client } = await this.#connection;
      const attempt = () => send(sdk, client, { abortSignal: deadline.signal, requestTimeout: limits.attemptMs });
      // The SDK has then learned the time of the server from its answer.
      return await attempt().catch((error) => (isClockError(error) ? attempt() : Promise.reject(error)));
    } catch (error) {
      throw new StoreError(isFull(error) ? 'full' : 'unavailable', error);
    } finally {
      clearTimeout(timer);
    }
  }

  async #connect(): Promise<{ sdk: Sdk; client: S3Client }> {
    const sdk = await import('@aws-sdk/client-s3');
    const { endpoint } = this.#options;
    // A slow reader holds its socket: puts must not queue behind readers, and an idle socket must not end a download.
    const agent = { keepAlive: true, maxSockets: Number.POSITIVE_INFINITY };
    const config: S3ClientConfig = {
      ...(endpoint && { endpoint, forcePathStyle: true }),
      maxAttempts: MAX_ATTEMPTS,
      // A compatible server that ignores the header would cost seconds.
      expectContinueHeader: false,
      requestHandler: {
        connectionTimeout: this.#limits.connectMs,
        throwOnRequestTimeout: true,
        socketTimeout: 0,
        httpAgent: agent,
        httpsAgent: agent,
      },
    };
    const client = new sdk.S3Client(config);
    if (!endpoint) return { sdk, client };
    // A compatible server rarely has regions, but a signature always names one.
    const region = await client.config.region().catch(() => 'us-east-1');
    client.destroy();
    return { sdk, client: new sdk.S3Client({ ...config, region }) };
  }
}

/** The size of the object, if the header describes exactly this part of it. */
function sizeIn(contentRange: string | undefined, { start, end }: ByteRange): number | undefined {
  const [, part, size] = /^bytes (\d+-\d+)\/(\d+)$/.exec(contentRange ?? '') ?? [];
  const last = Math.min(end, Number(size) - 1);
  return part === `${start}-${last}` ? Number(size) : undefined;
}

/** How compatible servers report that no space is left; S3 itself is never full. */
function isFull(error: unknown): boolean {
  const { name = '', $metadata } = error as { name?: string; $metadata?: { httpStatusCode?: number } };
  return $metadata?.httpStatusCode === 507 || /QuotaExceeded|StorageFull/.test(name);
}
