import type { Readable } from 'node:stream';

/** First and last byte of a part of an object, both included, counted from 0. */
export interface ByteRange {
  readonly start: number;
  readonly end: number;
}

export interface StoredAudio {
  /** Bytes of the whole object, whatever part of it the stream carries. */
  readonly size: number;
  readonly stream: Readable;
}

/** Of the file system that the objects are on. */
export interface AudioRoom {
  /** That this process may fill. */
  readonly freeBytes: number;
  readonly sizeBytes: number;
}

/** Objects under keys. Every method throws a StoreError when the store can't be reached, read or written. */
export interface AudioStore {
  /** Resolves when the object is durable; until then a reader sees what was there before. May be repeated. */
  put(key: string, audio: Buffer, mimeType: string): Promise<void>;

  /**
   * The object, or the given part of it; undefined when there is none. The caller reads or destroys the stream.
   * @throws RangeError when the part does not begin inside the object
   */
  open(key: string, range?: ByteRange): Promise<StoredAudio | undefined>;

  /** Deletes the object; one that is absent is no error. */
  delete(key: string): Promise<void>;

  /** How much room there is, where that can be told. */
  room?(): Promise<AudioRoom>;

  close(): Promise<void>;
}

/** The store failed: `full` when it has no room, `unavailable` for anything else. Names no path, key or address. */
export class StoreError extends Error {
  constructor(
    readonly reason: 'unavailable' | 'full',
    cause?: unknown,
  ) {
    super(reason === 'full' ? 'The audio store is full.' : 'The audio store is not available.', { cause });
    this.name = 'StoreError';
  }
}

const KEY = /^[A-Za-z0-9/_-]{1,200}$/;

/**
 * Holds a key against its alphabet: segments of letters, digits, `_` and `-`, separated by `/`. So no key leads out of
 * a store, and no two keys name the same object.
 * @throws TypeError a key is made by us, so another one is a programming error
 */
export function checkKey(key: string): void {
  if (!KEY.test(key) || key.split('/').includes('')) throw new TypeError('not a valid audio key');
}

/**
 * Holds a part against the size of its object. An end past the object's is allowed and means the object's.
 * @throws RangeError
 */
export function checkRange({ start, end }: ByteRange, size: number): void {
  const valid = Number.isSafeInteger(start) && Number.isSafeInteger(end) && start >= 0 && start <= end;
  if (!valid || start >= size) throw new RangeError('The part does not lie inside the object.');
}
