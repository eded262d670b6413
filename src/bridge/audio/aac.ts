import { registerAacEncoder } from '@mediabunny/aac-encoder';
import { AdtsOutputFormat, AudioSample, AudioSampleSource, Output, StreamTarget } from 'mediabunny';
import { SAMPLE_RATE } from './samples.ts';

const BITS_PER_SECOND = 64_000;

registerAacEncoder();

/** AAC-LC in ADTS frames. The encoder runs in a thread of its own. */
export async function* encodeAac(samples: AsyncIterable<Float32Array>): AsyncGenerator<Uint8Array> {
  let frames: Uint8Array[] = [];
  const sink = new WritableStream<{ data: Uint8Array }>({
    write: ({ data }) => {
      frames.push(data);
    },
  });
  const output = new Output({ format: new AdtsOutputFormat(), target: new StreamTarget(sink) });
  const source = new AudioSampleSource({ codec: 'aac', bitrate: BITS_PER_SECOND });
  output.addAudioTrack(source);
  await output.start();
  const taken = () => {
    const whole = Buffer.concat(frames);
    frames = [];
    return whole;
  };
  try {
    let spoken = 0;
    for await (const data of samples) {
      const timestamp = spoken / SAMPLE_RATE;
      const sample = new AudioSample({
        data,
        format: 'f32',
        numberOfChannels: 1,
        sampleRate: SAMPLE_RATE,
        timestamp,
      });
      await source.add(sample);
      sample.close();
      spoken += data.length;
      if (frames.length > 0) yield taken();
    }
    await output.finalize();
    yield taken();
  } finally {
    if (output.state !== 'finalized') await output.cancel();
  }
}
