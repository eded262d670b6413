import { execFileSync } from 'node:child_process';

export const DECODED_SAMPLE_RATE = 16_000;

const MIN_PITCH = 60;
const MAX_PITCH = 400;
const VOICED_CORRELATION = 0.6;
const QUIET = 0.02;

/** Decodes with ffmpeg, an implementation that shares nothing with the encoder. Samples from -1 to 1 at DECODED_SAMPLE_RATE. */
export function decode(mp3: Uint8Array): Float32Array {
  const options = `-v error -xerror -i pipe:0 -f f32le -ac 1 -ar ${DECODED_SAMPLE_RATE} -`.split(' ');
  const raw = Uint8Array.from(execFileSync('ffmpeg', options, { input: mp3, maxBuffer: 2 ** 28 }));
  return new Float32Array(raw.buffer);
}

/** Median fundamental frequency in Hz of the voiced parts, found as the first strong peak of the autocorrelation. */
export function medianPitch(samples: Float32Array, sampleRate: number): number {
  const window = Math.round(0.04 * sampleRate);
  const longest = Math.ceil(sampleRate / MIN_PITCH);
  const pitches: number[] = [];
  for (let start = 0; start + window + longest < samples.length; start += window) {
    const period = periodAt(samples, Math.floor(start), window, Math.floor(sampleRate / MAX_PITCH), longest);
    if (period !== undefined) pitches.push(sampleRate / period);
  }
  return median(pitches);
}

export function rootMeanSquare(samples: Float32Array): number {
  return Math.sqrt(samples.reduce((sum, sample) => sum + sample * sample, 0) / samples.length);
}

function periodAt(samples: Float32Array, start: number, window: number, shortest: number, longest: number) {
  if (rootMeanSquare(samples.subarray(start, start + window)) < QUIET) return undefined;
  const correlations: number[] = [];
  for (let lag = shortest; lag <= longest; lag++) correlations.push(correlation(samples, start, window, lag));
  const best = Math.max(...correlations);
  if (best < VOICED_CORRELATION) return undefined;
  const first = correlations.findIndex(
    (value, i) => value > 0.9 * best && value >= (correlations[i - 1] ?? 1) && value >= (correlations[i + 1] ?? 0),
  );
  return first < 0 ? undefined : shortest + first;
}

function correlation(samples: Float32Array, start: number, window: number, lag: number): number {
  let product = 0;
  let energy = 0;
  let laggedEnergy = 0;
  for (let i = start; i < start + window; i++) {
    const sample = samples[i] as number;
    const lagged = samples[i + lag] as number;
    product += sample * lagged;
    energy += sample * sample;
    laggedEnergy += lagged * lagged;
  }
  return product / Math.sqrt(energy * laggedEnergy + 1e-9);
}

function median(values: number[]): number {
  return values.sort((a, b) => a - b)[values.length >> 1] ?? Number.NaN;
}
