/** Zero crossings of the sinc on each side, at the lower of both rates. */
const CROSSINGS = 16;
/** End of the passband, as a fraction of the lower Nyquist frequency. */
const ROLL_OFF = 0.94;
/** Of the Kaiser window: the stopband is 80 dB down. */
const BETA = 8;

/** Windowed-sinc interpolation. @see https://ccrma.stanford.edu/~jos/resample/ */
export class Resampler {
  readonly #up: number;
  readonly #down: number;
  readonly #reach: number;
  readonly #cutoff: number;
  /** Filled lazily: unrelated rates have thousands of phases. */
  readonly #rows: Float32Array[] = [];
  /** Unconsumed input. It starts `#reach` samples before the next output. */
  #input: Float32Array<ArrayBufferLike>;
  #phase = 0;
  #pendingOutput = 0;

  constructor(from: number, to: number) {
    const divisor = greatestCommonDivisor(from, to);
    this.#up = to / divisor;
    this.#down = from / divisor;
    this.#cutoff = Math.min(1, to / from) * ROLL_OFF;
    this.#reach = Math.ceil(CROSSINGS / Math.min(1, to / from));
    this.#input = this.#silence();
  }

  push(samples: Float32Array): Float32Array {
    this.#pendingOutput += samples.length * (this.#up / this.#down);
    return this.#run(samples);
  }

  end(): Float32Array {
    const pendingOutput = Math.max(0, Math.round(this.#pendingOutput));
    const rest = this.#run(new Float32Array(2 * this.#reach)).subarray(0, pendingOutput);
    this.#input = this.#silence();
    this.#phase = 0;
    this.#pendingOutput = 0;
    return rest;
  }

  #silence = (): Float32Array => new Float32Array(this.#reach - 1);

  #row(phase: number): Float32Array {
    this.#rows[phase] ??= taps(this.#reach, phase / this.#up, this.#cutoff);
    return this.#rows[phase];
  }

  #run(samples: Float32Array): Float32Array {
    const input = new Float32Array(this.#input.length + samples.length);
    input.set(this.#input);
    input.set(samples, this.#input.length);
    const width = 2 * this.#reach;
    const output: number[] = [];
    let at = 0;
    while (at + width <= input.length) {
      const row = this.#row(this.#phase);
      let sum = 0;
      for (let tap = 0; tap < width; tap++) sum += (row[tap] as number) * (input[at + tap] as number);
      output.push(sum);
      this.#phase += this.#down;
      at += Math.floor(this.#phase / this.#up);
      this.#phase %= this.#up;
    }
    this.#input = input.slice(at);
    this.#pendingOutput -= output.length;
    return Float32Array.from(output);
  }
}

/** The filter for an output sample that lies `fraction` after the input sample number reach - 1. */
function taps(reach: number, fraction: number, cutoff: number): Float32Array {
  const row = Float32Array.from({ length: 2 * reach }, (_, tap) => {
    const distance = tap - (reach - 1) - fraction;
    return cutoff * sinc(cutoff * distance) * kaiser(distance / reach);
  });
  const sum = row.reduce((total, tap) => total + tap, 0);
  return row.map((tap) => tap / sum);
}

const sinc = (x: number): number => (x === 0 ? 1 : Math.sin(Math.PI * x) / (Math.PI * x));

const kaiser = (x: number): number => (Math.abs(x) >= 1 ? 0 : bessel(BETA * Math.sqrt(1 - x * x)) / bessel(BETA));

function bessel(x: number): number {
  let sum = 1;
  for (let k = 1, term = 1; term > sum * 1e-9; k++) {
    term *= (x / (2 * k)) ** 2;
    sum += term;
  }
  return sum;
}

const greatestCommonDivisor = (a: number, b: number): number => (b === 0 ? a : greatestCommonDivisor(b, a % b));
