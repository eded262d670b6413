import type { Utterance } from '../provider.ts';
import { type SpeechThread, unavailable } from './thread.ts';

type Piece = Uint8Array | undefined;

/**
 * One utterance being spoken on a thread. The next piece is made while the caller handles the last one, so no more than two
 * are in memory however slowly the caller reads. `release` is called once, when the thread is not needed any more,
 * and told whether all was spoken.
 */
export class Narration implements AsyncIterableIterator<Uint8Array> {
  #ahead: Promise<Piece>;
  #released = false;
  readonly #thread: SpeechThread;
  readonly #signal: AbortSignal;
  readonly #release: (isSpoken: boolean) => void;

  constructor(thread: SpeechThread, utterance: Utterance, signal: AbortSignal, release: (isSpoken: boolean) => void) {
    this.#thread = thread;
    this.#signal = signal;
    this.#release = release;
    signal.addEventListener('abort', this.#end);
    this.#ahead = this.#ask(utterance);
    if (signal.aborted) this.#end();
  }

  /** Resolves once the first piece is there, which next() will return. */
  async started(): Promise<void> {
    await this.#ahead;
  }

  async next(): Promise<IteratorResult<Uint8Array, undefined>> {
    const piece = await this.#ahead;
    if (piece === undefined) return { done: true, value: undefined };
    this.#ahead = this.#ask();
    return { done: false, value: piece };
  }

  async return(): Promise<IteratorResult<Uint8Array, undefined>> {
    this.#end();
    this.#ahead = Promise.resolve(undefined);
    return { done: true, value: undefined };
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  #ask(utterance?: Utterance): Promise<Piece> {
    // The thread may serve another utterance by now.
    if (this.#released)
      return handled(Promise.reject(unavailable('The embedded voice did not finish by the deadline')));
    const piece = this.#thread.ask(utterance);
    piece.then((bytes) => bytes === undefined && this.#leave(true), this.#end);
    return piece;
  }

  readonly #end = (): void => this.#leave(false);

  #leave(isSpoken: boolean): void {
    if (this.#released) return;
    this.#released = true;
    this.#signal.removeEventListener('abort', this.#end);
    this.#release(isSpoken);
  }
}

/** A rejection that nobody may come to read is no fault of the process. */
function handled<T>(promise: Promise<T>): Promise<T> {
  promise.catch(() => {});
  return promise;
}
