import type { Readable } from 'node:stream';

const MINUTE_MS = 60_000;

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

/** Answers to direct payments, which must survive a machine failure, and prepaid ones, which may be lost by it. */
export type DatedKind = 'x402' | 'prepaid';

/** Objects that are deleted by the minute of their keys' UUIDv7. Methods throw StoreError as those of AudioStore do. */
export interface DatedAudio {
  /** Resolves when the object is as durable as its kind. @param key `UUIDv7` or `UUIDv7-N` */
  put(key: string, audio: Buffer, mimeType: string): Promise<void>;
  /** Undefined if there is none. The caller must read or destroy the stream. @throws RangeError for a range outside */
  open(key: string, range?: ByteRange): Promise<StoredAudio | undefined>;
  /** The minutes since 1970 that have objects and ended before then, the earliest first. */
  minutes(before: Date): Promise<number[]>;
  /** Deletes all objects of a minute. Returns the count. */
  deleteMinute(minute: number): Promise<number>;
}

/** Objects by key. Every method throws StoreError if the store can't be reached, read or written. */
export interface AudioStore {
  /** Resolves when the object is durable; until then readers see the previous one. May be repeated. */
  put(key: string, audio: Buffer, mimeType: string): Promise<void>;
  /** Undefined if there is none. The caller must read or destroy the stream. @throws RangeError for a range outside */
  open(key: string, range?: ByteRange): Promise<StoredAudio | undefined>;
  delete(key: string): Promise<void>;
  readonly dated: Readonly<Record<DatedKind, DatedAudio>>;
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
    ? 'The audio store refuses requests, because its clock and the clock of this machine differ. Correct the clock (NTP).'
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
  if (!KEY.test(key) || key.split('/').includes('')) throw new TypeError('The key of the audio is not valid.');
}

const DATED_KEY = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}(-\d{1,10})?$/;

/** The minute since 1970 of a dated key: the first 48 bits of a UUIDv7 are milliseconds (RFC 9562). @throws TypeError */
export function minuteOf(key: string): number {
  if (!DATED_KEY.test(key)) throw new TypeError('The key of the audio does not contain a time.');
  return Math.floor(Number.parseInt(key.slice(0, 8) + key.slice(9, 13), 16) / MINUTE_MS);
}

/** Of names that are minutes, those that ended before then, in order. */
export const endedMinutes = (names: readonly string[], before: Date): number[] =>
  names
    .map(Number)
    .filter((minute) => (minute + 1) * MINUTE_MS <= before.getTime())
    .sort((a, b) => a - b);

export const outOfRange = () =>
  new RangeError(
    'The range is not within the stored audio. If the object is shorter than recorded, restore it from a backup.',
  );

/** An end beyond the object's is allowed. @throws RangeError */
export function checkRange({ start, end }: ByteRange, size: number): void {
  const valid = Number.isSafeInteger(start) && Number.isSafeInteger(end) && start >= 0 && start <= end;
  if (!valid || start >= size) throw outOfRange();
}
