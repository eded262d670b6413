import { Worker } from 'node:worker_threads';
import type { Reply, Utterance } from './voice-worker.ts';

const MAX_HEAP_MEGABYTES = 128;

export class VoiceThread {
  readonly #worker: Worker;
  #question: { resolve(piece: Uint8Array | undefined): void; reject(error: Error): void } | undefined;
  #isAlive = true;

  constructor(engine: WebAssembly.Module) {
    this.#worker = new Worker(workerModule(), {
      workerData: engine,
      execArgv: [],
      resourceLimits: { maxOldGenerationSizeMb: MAX_HEAP_MEGABYTES },
    });
    this.#worker.on('message', (reply: Reply) => this.#answer(reply));
    this.#worker.on('error', (error) => this.#end(error));
    this.#worker.on('exit', () => this.#end(new Error('the thread has ended')));
  }

  get isAlive(): boolean {
    return this.#isAlive;
  }

  get isFree(): boolean {
    return this.#isAlive && this.#question === undefined;
  }

  /** The next MP3 piece, of a new utterance if one is given. Undefined at the end. Allows one call at a time. */
  ask(utterance?: Utterance): Promise<Uint8Array | undefined> {
    return new Promise((resolve, reject) => {
      if (!this.isFree) {
        reject(new Error('the thread has ended'));
        return;
      }
      this.#question = { resolve, reject };
      this.#worker.postMessage(utterance ?? null);
    });
  }

  async stop(): Promise<void> {
    this.#end(new Error('the thread was stopped'));
    await this.#worker.terminate();
  }

  #answer(reply: Reply): void {
    const question = this.#question;
    this.#question = undefined;
    if (reply === 'failed') question?.reject(new Error('the text could not be spoken'));
    else question?.resolve(reply === 'end' ? undefined : reply);
  }

  #end(error: Error): void {
    this.#isAlive = false;
    this.#question?.reject(error);
    this.#question = undefined;
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
