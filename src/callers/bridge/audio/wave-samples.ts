import { isPlayable, waveChunks } from '../../../speech/wave-audio.ts';

export class UnreadableAudioError extends Error {}

const INTEGERS = 1;
const FLOATS = 3;
const EXTENSIBLE = 0xfffe;

interface Format {
  readonly tag: number;
  readonly channels: number;
  readonly rate: number;
  readonly bits: number;
  readonly bytes: number;
}

interface Wave {
  readonly rate: number;
  readonly length: number;
  read(start: number, end: number): Float32Array[];
}

/** Reads integers of up to 32 bits, and floats of 32 and 64. @throws UnreadableAudioError */
export function openWave(audio: Buffer): Wave {
  let format: Format | undefined;
  for (const { name, content } of waveChunks(audio)) {
    if (name === 'fmt ' && content.length >= 16) format = readFormat(content);
    if (name === 'data' && format) return waveOf(content, format);
  }
  throw new UnreadableAudioError('The audio is not a WAV file.');
}

function readFormat(chunk: Buffer): Format {
  const tag = chunk.readUInt16LE(0);
  const channels = chunk.readUInt16LE(2);
  const rate = chunk.readUInt32LE(4);
  if (!isPlayable(channels, rate)) {
    throw new UnreadableAudioError(
      `The WAV file has ${channels} channels and ${rate} samples a second, which is not supported.`,
    );
  }
  const bits = chunk.readUInt16LE(14);
  return {
    tag: tag === EXTENSIBLE && chunk.length >= 26 ? chunk.readUInt16LE(24) : tag,
    channels,
    rate,
    bits,
    // Unused bits of a sample are the lowest ones.
    bytes: Math.max(Math.ceil(bits / 8), Math.floor(chunk.readUInt16LE(12) / channels)),
  };
}

function waveOf(data: Buffer, format: Format): Wave {
  const { channels, bytes, rate } = format;
  const sample = reader(format);
  const length = Math.floor(data.length / (bytes * channels));
  const read = (start: number, end: number) =>
    Array.from({ length: channels }, (_, channel) =>
      Float32Array.from({ length: Math.min(end, length) - start }, (_sample, at) =>
        sample(data, ((start + at) * channels + channel) * bytes),
      ),
    );
  return { rate, length, read };
}

function reader({ tag, bits, bytes }: Format): (data: Buffer, at: number) => number {
  if (tag === INTEGERS && bytes === 1) return (data, at) => (data.readUInt8(at) - 128) / 128;
  if (tag === INTEGERS && bytes >= 2 && bytes <= 4) {
    const full = 2 ** (bytes * 8 - 1);
    return (data, at) => data.readIntLE(at, bytes) / full;
  }
  if (tag === FLOATS && bits === 32) return (data, at) => clipped(data.readFloatLE(at));
  if (tag === FLOATS && bits === 64) return (data, at) => clipped(data.readDoubleLE(at));
  throw new UnreadableAudioError(`WAV of format ${tag} with ${bits} bits is not supported.`);
}

/** Encoders accept no NaN and no values beyond ±1. */
const clipped = (sample: number): number => Math.max(-1, Math.min(1, sample || 0));
