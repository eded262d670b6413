import type { Speech } from '../../client/speech.ts';
import { decode } from './decode.ts';
import { Resampler } from './resampler.ts';
import { UnreadableAudioError } from './unreadable-audio.ts';

/** Of all that is encoded here, as OpenAI has it: samples per second, of one channel. */
export const SAMPLE_RATE = 24_000;

/** Audio as the service sends it. */
export interface Encoded {
  readonly audio: AsyncIterable<Uint8Array>;
  readonly contentType: Speech['contentType'];
}

/**
 * Speech as samples from -1 to 1, 24,000 a second, in pieces of about a quarter of a second.
 * @throws UnreadableAudioError, also for more than so many seconds, and whatever reading the audio throws
 */
export async function* samplesOf(speech: Encoded, mostSeconds: number): AsyncGenerator<Float32Array> {
  let length = 0;
  for await (const samples of resampled(speech)) {
    length += samples.length;
    if (length > mostSeconds * SAMPLE_RATE) {
      throw new UnreadableAudioError(`The audio is longer than ${mostSeconds} seconds.`);
    }
    if (samples.length > 0) yield samples;
  }
  if (length === 0) throw new UnreadableAudioError('The audio has no samples.');
}

/** Each part that has a sample rate of its own is resampled by itself. */
async function* resampled({ audio, contentType }: Encoded): AsyncGenerator<Float32Array> {
  const resamplers = new Map<number, Resampler>();
  let rate: number = SAMPLE_RATE;
  let resampler: Resampler | undefined;
  for await (const piece of decode(audio, contentType)) {
    if (piece.rate !== rate) {
      if (resampler) yield resampler.end();
      rate = piece.rate;
      resampler = rate === SAMPLE_RATE ? undefined : (resamplers.get(rate) ?? new Resampler(rate, SAMPLE_RATE));
      if (resampler) resamplers.set(rate, resampler);
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
