import { createMp3Encoder } from 'wasm-media-encoders';
import { concatBytes } from '../../lib/bytes.ts';

const OUTPUT_SAMPLE_RATE = 16_000;
const BLOCK_SAMPLES = 16_384;
const FULL_SCALE = 32_768;
/** Silence before the first sample in an MP3 decoder: LAME's delay and the decoder's own. */
const DELAY_SECONDS = 1_105 / OUTPUT_SAMPLE_RATE;
const KNEE = 0.7;
const CEILING = 0.9;

export interface Encoding {
  readonly sampleRate: number;
  readonly kilobitsPerSecond: 48 | 96;
  readonly gain: number;
}

/**
 * Encodes one MP3 stream at a time: mono, constant bit rate, no header frame, so that any part plays. Drops as much of
 * flite's leading silence as the format adds, so that the duration stays the same.
 */
export class Mp3Encoder {
  #gain = 1;
  #samplesToSkip = 0;
  readonly #lame: Awaited<ReturnType<typeof createMp3Encoder>>;

  private constructor(lame: Awaited<ReturnType<typeof createMp3Encoder>>) {
    this.#lame = lame;
  }

  static async create(): Promise<Mp3Encoder> {
    return new Mp3Encoder(await createMp3Encoder());
  }

  start({ sampleRate, kilobitsPerSecond, gain }: Encoding): void {
    this.#gain = gain;
    this.#samplesToSkip = Math.round(DELAY_SECONDS * sampleRate);
    this.#lame.configure({
      channels: 1,
      sampleRate,
      outputSampleRate: OUTPUT_SAMPLE_RATE,
      bitrate: kilobitsPerSecond,
    });
  }

  encode(samples: Int16Array): Uint8Array<ArrayBuffer> {
    const frames: Uint8Array[] = [];
    const skipped = Math.min(this.#samplesToSkip, samples.length);
    this.#samplesToSkip -= skipped;
    for (let start = skipped; start < samples.length; start += BLOCK_SAMPLES) {
      const block = Float32Array.from(samples.subarray(start, start + BLOCK_SAMPLES), (sample) =>
        limit((sample / FULL_SCALE) * this.#gain),
      );
      frames.push(this.#lame.encode([block]).slice());
    }
    return concatBytes(frames);
  }

  finish(): Uint8Array<ArrayBuffer> {
    return this.#lame.finalize().slice();
  }
}

/** Compresses peaks above the knee, so that they do not clip. */
function limit(sample: number): number {
  const size = Math.abs(sample);
  if (size <= KNEE) return sample;
  return Math.sign(sample) * (KNEE + (CEILING - KNEE) * Math.tanh((size - KNEE) / (CEILING - KNEE)));
}
