import { once } from 'node:events';
import { Worker } from 'node:worker_threads';
import type { Reply, Utterance } from './voice-worker.ts';

const MAX_HEAP_MEGABYTES = 128;

export class VoiceThread {
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
    if (reply === 'failed') throw new Error('the text could not be spoken');
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
