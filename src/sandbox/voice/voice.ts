import { once } from 'node:events';
import { availableParallelism } from 'node:os';
import { Readable } from 'node:stream';
import { Worker } from 'node:worker_threads';
import { loadEngine } from './flite.ts';
import type { Reply, Utterance } from './voice-worker.ts';

const WAITING_PER_THREAD = 16;
const DEFAULT_MAX_WAIT_MS = 15_000;
const MAX_HEAP_MEGABYTES = 128;

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

class VoiceThread {
  readonly #worker: Worker;
  readonly #ended = new AbortController();
  #isAsked = false;

  constructor(engine: WebAssembly.Module) {
    this.#worker = new Worker(workerModule(), {
      workerData: engine,
      execArgv: [],
      resourceLimits: { maxOldGenerationSizeMb: MAX_HEAP_MEGABYTES },
    });
    for (const event of ['error', 'exit']) this.#worker.on(event, () => this.#ended.abort());
  }

  get isAlive(): boolean {
    return !this.#ended.signal.aborted;
  }

  get isFree(): boolean {
    return this.isAlive && !this.#isAsked;
  }

  /** The next MP3 piece, of a new utterance if one is given. Undefined at the end. Allows one call at a time. */
  async ask(utterance?: Utterance): Promise<Uint8Array | undefined> {
    this.#isAsked = true;
    this.#worker.postMessage(utterance ?? null);
    const [reply]: Reply[] = await once(this.#worker, 'message', this.#ended);
    this.#isAsked = false;
    if (reply === 'failed') throw new Error('The voice worker failed to speak the text.');
    return reply === 'end' ? undefined : reply;
  }

  async stop(): Promise<void> {
    this.#ended.abort();
    await this.#worker.terminate();
  }
}

/** Node.js's --import does not reach ES modules in worker threads, so tsx is registered there first. */
function workerModule(): URL {
  if (!import.meta.url.endsWith('.ts')) return new URL('./voice-worker.js', import.meta.url);
  const loader = JSON.stringify(import.meta.resolve('tsx/esm/api'));
  const entry = JSON.stringify(new URL('./voice-worker.ts', import.meta.url).href);
  const source = `import { register } from ${loader}; register(); await import(${entry});`;
  return new URL(`data:text/javascript,${encodeURIComponent(source)}`);
}
