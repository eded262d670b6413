/** The producer behind a queue. */
export interface ChunkSource {
  /** The queue has room again after `push` returned false. */
  resume(): void;
  /** The consumer stopped before the end. */
  cancel(): void;
}

const HIGH_WATER_BYTES = 256 * 1024;
/** Bounds the overhead of chunks of a few bytes each. */
const HIGH_WATER_CHUNKS = 1024;

/**
 * Hands chunks from one producer to one consumer without copying them, in order, and tells the producer when to pause.
 * The consumer awaits each `next()` before it calls the next one, as `for await` does.
 */
export class ChunkQueue implements AsyncIterableIterator<Uint8Array> {
  #chunks: Uint8Array[] = [];
  #bytes = 0;
  #isPaused = false;
  #isClosed = false;
  #error: Error | undefined;
  #waiting: { resolve(result: IteratorResult<Uint8Array>): void; reject(error: Error): void } | undefined;
  readonly #source: ChunkSource;

  constructor(source: ChunkSource) {
    this.#source = source;
  }

  /** Appends a chunk. False asks the producer to pause until its `resume` is called. */
  push(chunk: Uint8Array): boolean {
    if (this.#waiting) {
      this.#waiting.resolve({ value: chunk, done: false });
      this.#waiting = undefined;
      return true;
    }
    this.#chunks.push(chunk);
    this.#bytes += chunk.length;
    this.#isPaused = this.#bytes >= HIGH_WATER_BYTES || this.#chunks.length >= HIGH_WATER_CHUNKS;
    return !this.#isPaused;
  }

  /** No chunk follows. With an error, the consumer meets it after the chunks that it has not read yet. */
  close(error?: Error): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#error = error;
    if (!this.#waiting) return;
    if (error) this.#waiting.reject(error);
    else this.#waiting.resolve({ value: undefined, done: true });
    this.#waiting = undefined;
  }

  /** Drops what the consumer has not read: its next step fails with this error. */
  abort(error: Error): void {
    this.#chunks = [];
    this.#bytes = 0;
    this.close(error);
  }

  next(): Promise<IteratorResult<Uint8Array>> {
    const value = this.#chunks.shift();
    if (value) {
      this.#bytes -= value.length;
      if (this.#isPaused && this.#bytes < HIGH_WATER_BYTES / 2 && this.#chunks.length < HIGH_WATER_CHUNKS / 2) {
        this.#isPaused = false;
        this.#source.resume();
      }
      return Promise.resolve({ value, done: false });
    }
    if (this.#error) return Promise.reject(this.#error);
    if (this.#isClosed) return Promise.resolve({ value: undefined, done: true });
    return new Promise((resolve, reject) => {
      this.#waiting = { resolve, reject };
    });
  }

  return(): Promise<IteratorResult<Uint8Array>> {
    this.#chunks = [];
    this.#bytes = 0;
    this.#error = undefined;
    if (!this.#isClosed) {
      this.close();
      this.#source.cancel();
    }
    return Promise.resolve({ value: undefined, done: true });
  }

  [Symbol.asyncIterator](): this {
    return this;
  }
}
