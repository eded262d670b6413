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
export async function* samplesOf({ audio, contentType }: Encoded): AsyncGenerator<Float32Array> {
  let resampler: Resampler | undefined;
  for await (const { rate, mono } of decode(audio, contentType)) {
    if (rate !== SAMPLE_RATE) resampler ??= new Resampler(rate, SAMPLE_RATE);
    const samples = resampler ? resampler.push(mono) : mono;
    if (samples.length > 0) yield samples;
  }
  const rest = resampler?.end();
  if (rest?.length) yield rest;
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
