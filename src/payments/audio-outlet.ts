import { Readable } from 'node:stream';
import type { AudioMemory, Share } from '../speech/audio-memory.ts';

/** What is handed to the stream at a time. */
const HANDED_BYTES = 64 * 1024;

/**
 * Audio on its way to a caller who reads as slowly as he likes: what he has not taken waits here, counted. It never
 * slows who gives it. Once the caller is gone nothing is kept.
 */
export class AudioOutlet extends Readable {
  readonly #share: Share;
  #waiting: Uint8Array[] = [];
  /** Index of the first chunk that waits. */
  #first = 0;
  /** Bytes that were handed to the stream and not read from it yet. */
  #handed = 0;
  #isWanted = false;
  #hasEnded = false;

  constructor(memory: AudioMemory) {
    super({ highWaterMark: 1 });
    this.#share = memory.share(() => this.destroy(new Error('too much audio waited for its caller')));
  }

  /** Chunks that are given together leave in one write, unless the caller is slow. */
  give(...chunks: Uint8Array[]): void {
    this.#add(chunks);
    this.#hand();
  }

  /** No audio follows this. */
  finish(last: Uint8Array): void {
    this.#add([last]);
    this.#hasEnded = true;
    this.#hand();
  }

  /** With so low a mark, it is called only once the caller has taken everything that was handed over. */
  override _read(): void {
    this.#isWanted = true;
    this.#share.add(-this.#handed);
    this.#handed = 0;
    this.#hand();
  }

  override _destroy(error: Error | null, callback: (error?: Error | null) => void): void {
    this.#waiting = [];
    this.#share.release();
    callback(error);
  }

  #add(chunks: readonly Uint8Array[]): void {
    if (this.destroyed) return;
    for (const chunk of chunks) {
      if (chunk.length === 0) continue;
      this.#waiting.push(chunk);
      this.#share.add(chunk.length);
    }
  }

  /** Hands over what waits, as far as a write takes it; then the end, once nothing waits. */
  #hand(): void {
    if (!this.#isWanted || this.destroyed) return;
    while (this.#handed < HANDED_BYTES) {
      const chunk = this.#waiting[this.#first];
      if (!chunk) break;
      this.#isWanted = false;
      this.#handed += chunk.length;
      this.#forgetFirst();
      this.push(chunk);
    }
    if (this.#hasEnded && this.#waiting.length === 0) {
      this.#isWanted = false;
      this.push(null);
    }
  }

  #forgetFirst(): void {
    this.#first++;
    if (this.#first < this.#waiting.length && this.#first < 1024) return;
    this.#waiting.splice(0, this.#first);
    this.#first = 0;
  }
}
