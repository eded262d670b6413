import { EventEmitter, once } from 'node:events';
import type { Speech } from '../client/index.ts';

const SLICE_BYTES = 65_536;

/** Small enough to stop between two, and to be sent by a slow connection in a minute. */
export function* slicesOf(bytes: Uint8Array): Generator<Uint8Array> {
  for (let at = 0; at < bytes.length; at += SLICE_BYTES) yield bytes.subarray(at, at + SLICE_BYTES);
}

/** Reads the audio of a purchase to its end, and plays it to any number of listeners from the start. */
export class Recording {
  readonly speech: Pick<Speech, 'contentType' | 'length' | 'receipt'>;
  /** Resolves when nothing more is read, also after a failure. */
  readonly ended: Promise<void>;
  byteLength = 0;
  isEnded = false;
  failure: { readonly cause: unknown } | undefined;
  readonly #parts: Uint8Array[] = [];
  readonly #reader: ReadableStreamDefaultReader<Uint8Array>;
  readonly #progress = new EventEmitter().setMaxListeners(0);

  constructor(speech: Speech) {
    this.speech = speech;
    this.#reader = speech.audio.getReader();
    this.ended = this.#read();
  }

  /** @throws what the purchase's audio failed with, or the reason of the signal */
  async *play(signal: AbortSignal): AsyncGenerator<Uint8Array> {
    for (let at = 0; ; ) {
      if (this.failure) throw this.failure.cause;
      const part = this.#parts[at];
      if (part) {
        at += 1;
        for (const bytes of slicesOf(part)) {
          signal.throwIfAborted();
          yield bytes;
        }
      } else if (this.isEnded) return;
      else await once(this.#progress, 'progress', { signal });
    }
  }

  /** @throws what the purchase's audio failed with */
  async whole(): Promise<Uint8Array> {
    await this.ended;
    if (this.failure) throw this.failure.cause;
    return Buffer.concat(this.#parts);
  }

  /** A cut recording has failed: its start must not pass for the whole. */
  async cancel(): Promise<void> {
    if (!this.isEnded) this.failure ??= { cause: new Error('The bridge was stopped before the audio was complete.') };
    await this.#reader.cancel().catch(() => {});
  }

  async #read(): Promise<void> {
    try {
      for (;;) {
        const { done, value } = await this.#reader.read();
        if (done) return;
        this.#parts.push(value);
        this.byteLength += value.length;
        this.#progress.emit('progress');
      }
    } catch (cause) {
      this.failure ??= { cause };
    } finally {
      this.isEnded = true;
      this.#progress.emit('progress');
    }
  }
}
