import { setImmediate as turn } from 'node:timers/promises';
import { MPEGDecoder } from 'mpg123-decoder';
import { FRAME_HEADER_BYTES, frameLength, frameRate } from '../../speech/mpeg-audio.ts';
import { isPlayable } from '../../speech/wave-audio.ts';
import { UnreadableAudioError } from './unreadable-audio.ts';
import { openWave } from './wave-samples.ts';

/** One channel, from -1 to 1. */
export interface Samples {
  /** Samples per second. */
  readonly rate: number;
  readonly mono: Float32Array;
}

/** A quarter of a second at 128 kbit/s: what is decoded, resampled and encoded before others have their turn. */
const MP3_PIECE_BYTES = 4_096;
const WAVE_SLICE_SAMPLES = 12_000;

/**
 * Decodes audio as it arrives, with a turn of the event loop after each piece.
 * @throws UnreadableAudioError when it is damaged, and whatever reading it throws
 */
export const decode = (
  audio: AsyncIterable<Uint8Array>,
  contentType: 'audio/mpeg' | 'audio/wav',
): AsyncGenerator<Samples> => (contentType === 'audio/wav' ? decodeWave(audio) : decodeMp3(audio));

async function* decodeMp3(audio: AsyncIterable<Uint8Array>): AsyncGenerator<Samples> {
  const decoder = new MPEGDecoder();
  await decoder.ready;
  try {
    let isHeard = false;
    for await (const piece of mp3Pieces(audio)) {
      const { channelData, sampleRate, errors } = decoder.decode(piece);
      if (errors.length > 0) throw new UnreadableAudioError(`The MP3 is damaged: ${errors[0]?.message}`);
      const mono = mixed(channelData);
      if (mono.length > 0 && !isPlayable(channelData.length, sampleRate)) {
        throw new UnreadableAudioError(`The MP3 has ${sampleRate} samples a second.`);
      }
      if (mono.length > 0) yield { rate: sampleRate, mono };
      isHeard ||= mono.length > 0;
      await turn();
    }
    if (!isHeard) throw new UnreadableAudioError('The audio is no MP3.');
  } finally {
    decoder.free();
  }
}

/**
 * Cuts a stream between frames, also where their sample rate changes: the decoder tells one rate for all samples of a
 * piece.
 */
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
