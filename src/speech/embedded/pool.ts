import { type SpeechThread, unavailable } from './thread.ts';

const FULL = 'The embedded voice has too many texts waiting; try again in a few seconds';
const DEADLINE = 'The embedded voice was not ready by the deadline; try again, or with a shorter text';
const CLOSING = 'The embedded voice is shutting down';

interface Waiter {
  give(thread: SpeechThread): void;
  refuse(message: string): void;
}

/** Hands out a fixed number of threads, first come, first served; who finds too many waiting is refused at once. */
export class ThreadPool {
  readonly #threads = new Set<SpeechThread>();
  readonly #idle: SpeechThread[] = [];
  readonly #waiting = new Set<Waiter>();
  #closed = false;
  readonly #size: number;
  readonly #maxWaiting: number;
  readonly #start: (onExit: () => void) => SpeechThread;

  /** `start` makes a thread, and calls what it is given when that has ended. */
  constructor(size: number, maxWaiting: number, start: (onExit: () => void) => SpeechThread) {
    this.#size = size;
    this.#maxWaiting = maxWaiting;
    this.#start = start;
    while (this.#threads.size < size) this.#idle.push(this.#add());
  }

  /**
   * A thread for the caller alone until it is released. Rejects with TTS_UNAVAILABLE when the signal fires, or when the queue is
   * full and the caller was not promised a thread.
   */
  async acquire(signal: AbortSignal, isPromised = false): Promise<SpeechThread> {
    if (this.#closed) throw unavailable(CLOSING);
    if (signal.aborted) throw unavailable(DEADLINE);
    const thread = this.#idle.pop() ?? (this.#threads.size < this.#size ? this.#add() : undefined);
    if (thread !== undefined) return thread;
    if (!isPromised && this.#waiting.size >= this.#maxWaiting) throw unavailable(FULL);
    return this.#wait(signal);
  }

  /** Takes a thread back. One that is still busy is stopped, and another started in its place. */
  release(thread: SpeechThread): void {
    if (thread.free) this.#offer(thread);
    else void thread.stop(DEADLINE);
  }

  /** Ends all threads and whatever they are doing. */
  async close(): Promise<void> {
    this.#closed = true;
    for (const waiter of this.#waiting) waiter.refuse(CLOSING);
    await Promise.all([...this.#threads].map((thread) => thread.stop(CLOSING)));
  }

  #wait(signal: AbortSignal): Promise<SpeechThread> {
    return new Promise((resolve, reject) => {
      const leave = () => {
        this.#waiting.delete(waiter);
        signal.removeEventListener('abort', onAbort);
      };
      const waiter: Waiter = {
        give: (thread) => {
          leave();
          resolve(thread);
        },
        refuse: (message) => {
          leave();
          reject(unavailable(message));
        },
      };
      const onAbort = () => waiter.refuse(DEADLINE);
      signal.addEventListener('abort', onAbort);
      this.#waiting.add(waiter);
    });
  }

  #offer(thread: SpeechThread): void {
    const [first] = this.#waiting;
    if (first === undefined) this.#idle.push(thread);
    else first.give(thread);
  }

  #add(): SpeechThread {
    const thread = this.#start(() => this.#replace(thread));
    this.#threads.add(thread);
    return thread;
  }

  // A thread that ended by itself is replaced on demand only, lest a fault at its start repeats for ever.
  #replace(thread: SpeechThread): void {
    this.#threads.delete(thread);
    if (this.#idle.includes(thread)) this.#idle.splice(this.#idle.indexOf(thread), 1);
    if (!this.#closed && (thread.stopped || this.#waiting.size > 0)) this.#offer(this.#add());
  }
}
