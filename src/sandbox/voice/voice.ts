import { availableParallelism } from 'node:os';
import { Readable } from 'node:stream';
import { loadEngine } from './flite.ts';
import { VoiceThread } from './voice-thread.ts';
import type { Utterance } from './voice-worker.ts';

const WAITING_PER_THREAD = 16;
const DEFAULT_MAX_WAIT_MS = 15_000;

export class BusyError extends Error {}

export interface VoiceOptions {
  readonly threads?: number;
  readonly maxWaitMs?: number;
}

export class Voice {
  readonly #maxWaiting: number;
  readonly #maxWaitMs: number;
  readonly #idle: Promise<VoiceThread[]>;
  readonly #threads = new Set<VoiceThread>();
  readonly #waiting = new Set<(thread: VoiceThread) => void>();
  #isClosed = false;

  constructor({ threads = Math.max(2, availableParallelism()), maxWaitMs = DEFAULT_MAX_WAIT_MS }: VoiceOptions = {}) {
    this.#maxWaiting = threads * WAITING_PER_THREAD;
    this.#maxWaitMs = maxWaitMs;
    this.#idle = loadEngine().then((engine) => Array.from({ length: threads }, () => this.#start(engine)));
    this.#idle.catch(() => {});
  }

  /** Resolves once the first piece of the MP3 stream exists. Makes one piece ahead. @throws BusyError */
  async speak(utterance: Utterance, signal: AbortSignal): Promise<Readable> {
    const thread = await this.#acquire(signal);
    const stop = () => void thread.stop();
    const release = () => {
      signal.removeEventListener('abort', stop);
      void this.#release(thread);
    };
    signal.addEventListener('abort', stop);
    try {
      const first = await thread.ask(utterance);
      return Readable.from(piecesOf(thread, first), { objectMode: false }).once('close', release);
    } catch (error) {
      release();
      throw error;
    }
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    await this.#idle.catch(() => {});
    await Promise.all([...this.#threads].map((thread) => thread.stop()));
  }

  async #acquire(signal: AbortSignal): Promise<VoiceThread> {
    const idle = await this.#idle;
    signal.throwIfAborted();
    const thread = idle.pop();
    if (thread) return thread.isAlive ? thread : this.#replace(thread);
    if (this.#waiting.size >= this.#maxWaiting) throw new BusyError();
    return new Promise((resolve, reject) => {
      const take = (free: VoiceThread) => {
        this.#waiting.delete(take);
        resolve(free);
      };
      const giveUp = () => {
        this.#waiting.delete(take);
        reject(new BusyError());
      };
      this.#waiting.add(take);
      for (const end of [signal, AbortSignal.timeout(this.#maxWaitMs)]) end.addEventListener('abort', giveUp);
    });
  }

  async #release(thread: VoiceThread): Promise<void> {
    const free = thread.isFree || this.#isClosed ? thread : await this.#replace(thread);
    const [first] = this.#waiting;
    if (first) first(free);
    else (await this.#idle).push(free);
  }

  async #replace(thread: VoiceThread): Promise<VoiceThread> {
    void thread.stop();
    this.#threads.delete(thread);
    return this.#start(await loadEngine());
  }

  #start(engine: WebAssembly.Module): VoiceThread {
    const thread = new VoiceThread(engine);
    this.#threads.add(thread);
    return thread;
  }
}

async function* piecesOf(thread: VoiceThread, first: Uint8Array | undefined): AsyncGenerator<Uint8Array> {
  for (let piece = first; piece; ) {
    const next = thread.ask();
    next.catch(() => {});
    yield piece;
    piece = await next;
  }
}
