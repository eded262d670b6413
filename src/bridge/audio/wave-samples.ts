import { waveChunks } from '../../speech/wave-chunks.ts';

const INTEGERS = 1;
const FLOATS = 3;
const EXTENSIBLE = 0xfffe;

interface Format {
  readonly tag: number;
  readonly channels: number;
  readonly rate: number;
  readonly bits: number;
  /** Of one sample of one channel. */
  readonly bytes: number;
}

/**
 * The samples of a WAV file by channel, from -1 to 1: integers of up to 32 bits, and floats of 32 and 64.
 * @throws Error for any other, and for what is no WAV file
 */
export function readWave(audio: Buffer): { rate: number; channels: Float32Array[] } {
  let format: Format | undefined;
  for (const { name, content } of waveChunks(audio)) {
    if (name === 'fmt ' && content.length >= 16) format = readFormat(content);
    if (name === 'data' && format) return { rate: format.rate, channels: split(content, format) };
  }
  throw new Error('The audio is no WAV file.');
}

function readFormat(chunk: Buffer): Format {
  const tag = chunk.readUInt16LE(0);
  const channels = chunk.readUInt16LE(2);
  const bits = chunk.readUInt16LE(14);
  return {
    tag: tag === EXTENSIBLE && chunk.length >= 26 ? chunk.readUInt16LE(24) : tag,
    channels,
    rate: chunk.readUInt32LE(4),
    bits,
    // Fewer bits than the bytes could hold are the upper ones.
    bytes: Math.max(Math.ceil(bits / 8), Math.floor(chunk.readUInt16LE(12) / channels)),
  };
}

function split(data: Buffer, format: Format): Float32Array[] {
  const { channels, bytes, rate } = format;
  if (channels === 0 || rate === 0) throw new Error(`The WAV file has ${channels} channels, ${rate} samples a second.`);
  const sample = reader(format);
  const length = Math.floor(data.length / (bytes * channels));
  return Array.from({ length: channels }, (_, channel) =>
    new Float32Array(length).map((_sample, at) => sample(data, (at * channels + channel) * bytes)),
  );
}

function reader({ tag, bits, bytes }: Format): (data: Buffer, at: number) => number {
  if (tag === INTEGERS && bytes === 1) return (data, at) => (data.readUInt8(at) - 128) / 128;
  if (tag === INTEGERS && bytes >= 2 && bytes <= 4) {
    const full = 2 ** (bytes * 8 - 1);
    return (data, at) => data.readIntLE(at, bytes) / full;
  }
  if (tag === FLOATS && bits === 32) return (data, at) => data.readFloatLE(at);
  if (tag === FLOATS && bits === 64) return (data, at) => data.readDoubleLE(at);
  throw new Error(`WAV of format ${tag} with ${bits} bits can't be read here.`);
}
