import type { Readable } from 'node:stream';
import { isUuid } from '../../lib/uuid.ts';

/** First and last byte of a range, both inclusive, from 0. */
export interface ByteRange {
  readonly start: number;
  readonly end: number;
}

export interface StoredAudio {
  readonly size: number;
  readonly stream: Readable;
}

export interface AudioRoom {
  readonly freeBytes: number;
  readonly sizeBytes: number;
}

/** Objects by key. Every method throws StoreError if the store can't be reached, read or written. */
export interface AudioStore {
  /** Resolves when the object is durable; until then readers see the previous one. May be repeated. */
  put(key: string, audio: Buffer, mimeType: string): Promise<void>;
  /** Undefined if there is none. The caller must read or destroy the stream. @throws RangeError for a range outside */
  open(key: string, range?: ByteRange): Promise<StoredAudio | undefined>;
  delete(key: string): Promise<void>;
  /** Stores an object that a machine failure may lose. @param id UUIDv7, whose time is that of the object */
  putTemporary(id: string, audio: Buffer, mimeType: string): Promise<void>;
  openTemporary(id: string, range?: ByteRange): Promise<StoredAudio | undefined>;
  /** Deletes temporary objects whose ids were made before then, to the minute. Returns the count. */
  deleteTemporary(before: Date): Promise<number>;
  room?(): Promise<AudioRoom>;
  /** Writes and removes something, to learn at a start whether that works. A bucket is asked by doctor instead. */
  tryWrite?(): Promise<void>;
  close(): Promise<void>;
}

const CLOCK_ERRORS = ['RequestTimeTooSkewed', 'RequestInTheFuture', 'RequestExpired'];

/** Whether a server says that the clock of this machine and its own differ. */
export const isClockError = (error: unknown): boolean => error instanceof Error && CLOCK_ERRORS.includes(error.name);

const messageOf = (reason: StoreError['reason'], cause: unknown): string => {
  if (reason === 'full') return 'The audio store is full.';
  return isClockError(cause)
    ? 'The audio store is not available: its clock and that of this machine differ.'
    : 'The audio store is not available.';
};

/** `full`: no space is left. `unavailable`: anything else. Names no path, key or address. */
export class StoreError extends Error {
  constructor(
    readonly reason: 'unavailable' | 'full',
    cause?: unknown,
  ) {
    super(messageOf(reason, cause), { cause });
    this.name = 'StoreError';
  }
}

const KEY = /^[A-Za-z0-9/_-]{1,200}$/;

/** No key leads out of a store, and no two keys name the same object. @throws TypeError */
export function checkKey(key: string): void {
  if (!KEY.test(key) || key.split('/').includes('')) throw new TypeError('not a valid audio key');
}

export const TEMPORARY = 'temporary';

/** The minute since 1970 in which an id was made. @param id UUIDv7, whose first 48 bits are milliseconds (RFC 9562) */
const minuteOf = (id: string): number => Math.floor(Number.parseInt(id.replace('-', '').slice(0, 12), 16) / 60_000);

export function temporaryKey(id: string): string {
  if (!isUuid(id)) throw new TypeError('not a UUID');
  return `${TEMPORARY}/${minuteOf(id)}/${id}`;
}

export const firstKeptMinute = (before: Date): number => Math.floor(before.getTime() / 60_000);

/** An end beyond the object's is allowed. @throws RangeError */
export function checkRange({ start, end }: ByteRange, size: number): void {
  const valid = Number.isSafeInteger(start) && Number.isSafeInteger(end) && start >= 0 && start <= end;
  if (!valid || start >= size) throw new RangeError('The part does not lie inside the object.');
}
