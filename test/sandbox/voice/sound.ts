import { execFileSync } from 'node:child_process';

/** Decodes with ffmpeg, an implementation that shares nothing with the encoder. Samples from -1 to 1 at 16 kHz. */
export function decode(mp3: Uint8Array): Float32Array {
  const options = '-v error -xerror -i pipe:0 -f f32le -ac 1 -ar 16000 -'.split(' ');
  const raw = Uint8Array.from(execFileSync('ffmpeg', options, { input: mp3, maxBuffer: 2 ** 28 }));
  return new Float32Array(raw.buffer);
}

export function rootMeanSquare(samples: Float32Array): number {
  return Math.sqrt(samples.reduce((sum, sample) => sum + sample * sample, 0) / samples.length);
}
