import { setImmediate as turn } from 'node:timers/promises';
import { MPEGDecoder } from 'mpg123-decoder';
import { counted } from '../../../lib/counted.ts';
import { FRAME_HEADER_BYTES, frameLength, frameRate } from '../../../speech/mpeg-frame.ts';
import { isPlayable, waveChunks } from '../../../speech/wave-audio.ts';
import type { Speech } from '../../client/index.ts';
import { Resampler } from './resampler.ts';

/** As OpenAI's API: samples per second of one channel. */
export const SAMPLE_RATE = 24_000;

interface Samples {
  readonly rate: number;
  readonly mono: Float32Array;
}

/** A quarter of a second at 128 kbit/s, processed in one turn of the event loop. */
const MP3_PIECE_BYTES = 4_096;
const WAVE_SLICE_SAMPLES = 12_000;

/** Samples from -1 to 1. Yields to the event loop after each piece. @throws UnreadableAudioError */
export async function* samplesOf(
  audio: AsyncIterable<Uint8Array>,
  contentType: Speech['contentType'],
  maxSeconds: number,
): AsyncGenerator<Float32Array> {
  let length = 0;
  for await (const samples of resampled(contentType === 'audio/wav' ? decodeWave(audio) : decodeMp3(audio))) {
    length += samples.length;
    if (length > maxSeconds * SAMPLE_RATE) {
      throw new UnreadableAudioError(`The audio is longer than ${maxSeconds} seconds, too long for this text.`);
    }
    if (samples.length > 0) yield samples;
  }
  if (length === 0) throw new UnreadableAudioError('The audio has no samples.');
}

async function* resampled(pieces: AsyncIterable<Samples>): AsyncGenerator<Float32Array> {
  const resamplers = new Map<number, Resampler>();
  let rate: number = SAMPLE_RATE;
  let resampler: Resampler | undefined;
  for await (const piece of pieces) {
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

async function* decodeMp3(audio: AsyncIterable<Uint8Array>): AsyncGenerator<Samples> {
  const decoder = new MPEGDecoder();
  await decoder.ready;
  try {
    let hasSamples = false;
    for await (const piece of mp3Pieces(audio)) {
      const { channelData, sampleRate, errors } = decoder.decode(piece);
      if (errors.length > 0) {
        throw new UnreadableAudioError(`The MP3 from the service is damaged (${errors[0]?.message}).`);
      }
      const mono = mixed(channelData);
      if (mono.length > 0 && !isPlayable(channelData.length, sampleRate)) {
        throw new UnreadableAudioError(
          `The MP3 has ${sampleRate} samples a second, which this bridge does not support.`,
        );
      }
      if (mono.length > 0) yield { rate: sampleRate, mono };
      hasSamples ||= mono.length > 0;
      await turn();
    }
    if (!hasSamples) throw new UnreadableAudioError('The audio from the service is not MP3.');
  } finally {
    decoder.free();
  }
}

/** Cuts between frames, and wherever the sample rate changes: the decoder returns one rate per piece. */
async function* mp3Pieces(audio: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
  let rest: Uint8Array = new Uint8Array();
  let rate: number | undefined;
  for await (const bytes of audio) {
    const stream = Buffer.concat([rest, bytes]);
    let start = 0;
    let at = 0;
    while (at + FRAME_HEADER_BYTES <= stream.length) {
      const length = frameLength(stream, at);
      const next = at + (length ?? 1);
      if (next > stream.length) break;
      const nextRate = length === undefined ? rate : frameRate(stream, at);
      if (at > start && (nextRate !== rate || at - start >= MP3_PIECE_BYTES)) {
        yield stream.subarray(start, at);
        start = at;
      }
      rate = nextRate;
      at = next;
    }
    if (at > start) yield stream.subarray(start, at);
    rest = stream.subarray(at);
  }
  if (rest.length > 0) yield rest;
}

async function* decodeWave(audio: AsyncIterable<Uint8Array>): AsyncGenerator<Samples> {
  const parts: Uint8Array[] = [];
  for await (const bytes of audio) parts.push(bytes);
  const wave = openWave(Buffer.concat(parts));
  for (let start = 0; start < wave.length; start += WAVE_SLICE_SAMPLES) {
    yield { rate: wave.rate, mono: mixed(wave.read(start, start + WAVE_SLICE_SAMPLES)) };
    await turn();
  }
}

function mixed([first = new Float32Array(), ...others]: readonly Float32Array[]): Float32Array {
  if (others.length === 0) return first;
  return first.map(
    (sample, at) => others.reduce((sum, channel) => sum + (channel[at] ?? 0), sample) / (others.length + 1),
  );
}

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
  throw new UnreadableAudioError('The audio from the service is not a WAV file.');
}

function readFormat(chunk: Buffer): Format {
  const tag = chunk.readUInt16LE(0);
  const channels = chunk.readUInt16LE(2);
  const rate = chunk.readUInt32LE(4);
  if (!isPlayable(channels, rate)) {
    throw new UnreadableAudioError(
      `The WAV file has ${counted(channels, 'channel')} and ${counted(rate, 'sample')} a second, which this bridge does not support.`,
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
  throw new UnreadableAudioError(
    `This bridge does not support a WAV file with the format code ${tag} and ${counted(bits, 'bit')} per sample.`,
  );
}

/** Encoders accept no NaN and no values beyond ±1. */
const clipped = (sample: number): number => Math.max(-1, Math.min(1, sample || 0));
