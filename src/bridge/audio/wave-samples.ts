import { waveChunks } from '../../speech/wave-chunks.ts';

const INTEGERS = 1;
const FLOATS = 3;
const EXTENSIBLE = 0xfffe;

interface Format {
  readonly kind: number;
  readonly channels: number;
  readonly rate: number;
  readonly bits: number;
}

/**
 * The samples of a WAV file by channel, from -1 to 1: integers of 16, 24 and 32 bits, and floats of 32.
 * @throws Error for any other, and for what is no WAV file
 */
export function readWave(bytes: Buffer): { rate: number; channels: Float32Array[] } {
  let format: Format | undefined;
  for (const { name, content } of waveChunks(bytes)) {
    if (name === 'fmt ' && content.length >= 16) format = readFormat(content);
    if (name === 'data' && format) return { rate: format.rate, channels: split(content, format) };
  }
  throw new Error('The audio is no WAV file.');
}

function readFormat(chunk: Buffer): Format {
  const tag = chunk.readUInt16LE(0);
  return {
    kind: tag === EXTENSIBLE && chunk.length >= 26 ? chunk.readUInt16LE(24) : tag,
    channels: chunk.readUInt16LE(2),
    rate: chunk.readUInt32LE(4),
    bits: chunk.readUInt16LE(14),
  };
}

function split(data: Buffer, format: Format): Float32Array[] {
  const sample = reader(format);
  const { channels, bits } = format;
  const bytes = bits / 8;
  const length = Math.floor(data.length / (bytes * channels));
  return Array.from({ length: channels }, (_, channel) =>
    new Float32Array(length).map((_sample, at) => sample(data, (at * channels + channel) * bytes)),
  );
}

function reader({ kind, bits }: Format): (data: Buffer, at: number) => number {
  if (kind === INTEGERS && bits === 16) return (data, at) => data.readInt16LE(at) / 2 ** 15;
  if (kind === INTEGERS && bits === 24) return (data, at) => data.readIntLE(at, 3) / 2 ** 23;
  if (kind === INTEGERS && bits === 32) return (data, at) => data.readInt32LE(at) / 2 ** 31;
  if (kind === FLOATS && bits === 32) return (data, at) => data.readFloatLE(at);
  throw new Error(`WAV files of kind ${kind} with ${bits} bits can't be read.`);
}
