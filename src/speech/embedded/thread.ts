import { Worker } from 'node:worker_threads';
import { SpeechError, type Utterance } from '../provider.ts';
import type { Reply } from './voice-worker.ts';

/** A piece takes a second at most, unless others take the processor; one that takes this long has gone astray. */
const PIECE_DEADLINE_MS = 60_000;
const MAX_HEAP_MEGABYTES = 128;
const BROKE_OFF = 'The embedded voice broke off; try again';
const OVERRUN = 'The embedded voice took too long; try again';

type Piece = Uint8Array | undefined;
interface Question {
  resolve(piece: Piece): void;
  reject(error: SpeechError): void;
}

/** A worker thread that speaks one utterance at a time. */
export class SpeechThread {
  readonly #worker: Worker;
  #question: Question | undefined;
  #broken = false;
  #stopping = false;

  /** `onExit` is called once when the thread has ended, by itself or by stop(). */
  constructor(engine: WebAssembly.Module, onExit: () => void) {
    this.#worker = new Worker(workerModule(), {
      workerData: engine,
      execArgv: [],
      resourceLimits: { maxOldGenerationSizeMb: MAX_HEAP_MEGABYTES },
    });
    this.#worker.on('message', (reply: Reply) => this.#answer(reply));
    this.#worker.on('error', () => this.#breakOff());
    this.#worker.on('exit', () => {
      this.#breakOff();
      onExit();
    });
  }

  /** True when it waits for an utterance or for the next question. */
  get free(): boolean {
    return !this.#broken && !this.#stopping && this.#question === undefined;
  }

  /** True once stop() was called, whether or not the thread has ended yet. */
  get stopped(): boolean {
    return this.#stopping;
  }

  /**
   * Asks for the next piece of the MP3 stream, of a new utterance if one is given. Resolves to undefined at its end.
   * One question at a time; rejects with SpeechError.
   */
  ask(utterance?: Utterance): Promise<Piece> {
    if (!this.free) return Promise.reject(unavailable(BROKE_OFF));
    return new Promise((resolve, reject) => {
      const overrun = setTimeout(() => void this.stop(OVERRUN), PIECE_DEADLINE_MS);
      const settle = () => {
        clearTimeout(overrun);
        this.#question = undefined;
      };
      this.#question = {
        resolve: (piece) => {
          settle();
          resolve(piece);
        },
        reject: (error) => {
          settle();
          reject(error);
        },
      };
      this.#worker.postMessage(utterance ?? null);
    });
  }

  /** Ends the thread whatever it does; an open question is rejected with TTS_UNAVAILABLE and this message. */
  async stop(message: string): Promise<void> {
    this.#stopping = true;
    this.#fail(message);
    await this.#worker.terminate();
  }

  #answer(reply: Reply): void {
    if (reply === 'failed') {
      this.#question?.reject(
        new SpeechError('TTS_UPSTREAM_ERROR', 'The embedded voice could not speak this text', false),
      );
    } else {
      this.#question?.resolve(reply === 'end' ? undefined : reply);
    }
  }

  #breakOff(): void {
    this.#broken = true;
    this.#fail(BROKE_OFF);
  }

  #fail(message: string): void {
    this.#question?.reject(unavailable(message));
  }
}

export function unavailable(message: string): SpeechError {
  return new SpeechError('TTS_UNAVAILABLE', message, true);
}

/** Node's own --import does not reach ES modules in worker threads, so TypeScript needs its loader registered there first. */
function workerModule(): URL {
  if (!import.meta.url.endsWith('.ts')) return new URL('./voice-worker.js', import.meta.url);
  const loader = JSON.stringify(import.meta.resolve('tsx/esm/api'));
  const entry = JSON.stringify(new URL('./voice-worker.ts', import.meta.url).href);
  const source = `import { register } from ${loader}; register(); await import(${entry});`;
  return new URL(`data:text/javascript,${encodeURIComponent(source)}`);
}
