import { createMp3Encoder } from 'wasm-media-encoders';

/** A tone, from -1 to 1. */
export const tone = (hertz: number, rate: number, seconds: number, loudness = 0.5): Float32Array =>
  Float32Array.from({ length: rate * seconds }, (_, at) => loudness * Math.sin((2 * Math.PI * hertz * at) / rate));

/** Likewise as MP3 of one channel. @param rate one that MP3 has, such as 16,000 or 44,100 */
export async function toneMp3(hertz: number, rate: 16_000 | 24_000 | 44_100, seconds: number): Promise<Uint8Array> {
  const encoder = await createMp3Encoder();
  encoder.configure({ channels: 1, sampleRate: rate, outputSampleRate: rate, bitrate: rate < 32_000 ? 64 : 128 });
  return Buffer.concat([encoder.encode([tone(hertz, rate, seconds)]).slice(), encoder.finalize().slice()]);
}

/** How much of the sound is that tone: 1 for nothing else. */
export function share(hertz: number, rate: number, samples: Float32Array): number {
  let [sine, cosine, all] = [0, 0, 0];
  samples.forEach((sample, at) => {
    const angle = (2 * Math.PI * hertz * at) / rate;
    sine += sample * Math.sin(angle);
    cosine += sample * Math.cos(angle);
    all += sample * sample;
  });
  return (2 * (sine * sine + cosine * cosine)) / samples.length / all;
}
