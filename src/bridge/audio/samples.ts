import type { Speech } from '../../client/speech.ts';
import { decode } from './decode.ts';
import { Resampler } from './resampler.ts';

/** Of all that is encoded here, as OpenAI has it: samples per second, of one channel. */
export const SAMPLE_RATE = 24_000;

/** Audio as the service sends it. */
export interface Encoded {
  readonly audio: AsyncIterable<Uint8Array>;
  readonly contentType: Speech['contentType'];
}

/** Speech as samples from -1 to 1, 24,000 a second, in pieces of about a quarter of a second. */
export async function* samplesOf(speech: Encoded): AsyncGenerator<Float32Array> {
  for await (const samples of resampled(speech)) if (samples.length > 0) yield samples;
}

/** Each part that has a sample rate of its own is resampled by itself. */
async function* resampled({ audio, contentType }: Encoded): AsyncGenerator<Float32Array> {
  let rate: number = SAMPLE_RATE;
  let resampler: Resampler | undefined;
  for await (const piece of decode(audio, contentType)) {
    if (piece.rate !== rate) {
      if (resampler) yield resampler.end();
      rate = piece.rate;
      resampler = rate === SAMPLE_RATE ? undefined : new Resampler(rate, SAMPLE_RATE);
    }
    yield resampler ? resampler.push(piece.mono) : piece.mono;
  }
  if (resampler) yield resampler.end();
}

/** Samples as signed 16-bit integers. */
export const toIntegers = (samples: Float32Array): Int16Array<ArrayBuffer> =>
  Int16Array.from(samples, (sample) => Math.round(Math.max(-1, Math.min(1, sample)) * 32_767));

/** Likewise, little-endian. */
export function toPcm(samples: Float32Array): Buffer<ArrayBuffer> {
  const bytes = Buffer.alloc(samples.length * 2);
  toIntegers(samples).forEach((sample, at) => {
    bytes.writeInt16LE(sample, at * 2);
  });
  return bytes;
}
