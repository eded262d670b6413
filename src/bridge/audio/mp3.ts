import { createMp3Encoder } from 'wasm-media-encoders';
import { SAMPLE_RATE } from './samples.ts';

const KILOBITS_PER_SECOND = 96;

/** MP3 of constant bit rate, for speech that came as WAV. */
export async function* encodeMp3(samples: AsyncIterable<Float32Array>): AsyncGenerator<Uint8Array> {
  const lame = await createMp3Encoder();
  lame.configure({
    channels: 1,
    sampleRate: SAMPLE_RATE,
    outputSampleRate: SAMPLE_RATE,
    bitrate: KILOBITS_PER_SECOND,
  });
  // What the encoder returns lies in its memory, which the next call writes over.
  for await (const piece of samples) yield lame.encode([piece]).slice();
  yield lame.finalize().slice();
}
