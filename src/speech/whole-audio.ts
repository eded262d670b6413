import { concatBytes, matches } from '../lib/bytes.ts';
import {
  type Description,
  FRAME_HEADER_BYTES,
  frameLength,
  id3Length,
  readDescription,
  wholeFrames,
  xingOffset,
} from './mpeg-frame.ts';
import type { AudioType } from './provider.ts';

/** Completes a whole file by what could not be known while it streamed: its length (R68). May change `bytes`. */
export function wholeAudio(type: AudioType, bytes: Uint8Array, description?: Uint8Array): Uint8Array {
  if (type === 'audio/mpeg') return withDescription(bytes, description);
  writeSizes(bytes);
  return bytes;
}

const TOC_ENTRIES = 100;
/** The name, flags, frames, bytes and table of a Xing frame. */
const XING_BYTES = 16 + TOC_ENTRIES;
const HAS_FRAMES_BYTES_AND_TOC = 7;
const NO_CRC = 1;

interface Frames {
  readonly bytes: Uint8Array;
  /** Where each frame begins. */
  readonly offsets: readonly number[];
  readonly isVariable: boolean;
}

/**
 * Puts a frame with the numbers of frames and bytes in front of a whole MP3 if it has none and needs it: players tell the
 * length and find positions by it where the bit rate varies.
 * @param given the frame that its encoder wrote, which is preferred if it is about the same frames
 */
function withDescription(audio: Uint8Array, given?: Uint8Array): Uint8Array {
  const start = id3Length(audio) ?? 0;
  const ownLength = readDescription(audio, start) ? (frameLength(audio, start) ?? 0) : 0;
  const own = ownLength > 0 ? audio.subarray(start, start + ownLength) : undefined;
  const sound = framesOf(audio.subarray(start + ownLength));
  if (own ? fits(own, sound) : !given && !sound.isVariable) return audio;
  const isFitting = given !== undefined && fits(given, sound);
  const description = isFitting
    ? given
    : describe({
        header: sound.bytes.subarray(0, FRAME_HEADER_BYTES),
        frames: sound.offsets.length,
        bytes: sound.bytes.length,
        isVariable: sound.isVariable,
        offsetOf: (frame) => sound.offsets[frame] as number,
      });
  return concatBytes([audio.subarray(0, start), description, sound.bytes]);
}

function framesOf(bytes: Uint8Array): Frames {
  const { offsets } = wholeFrames(bytes);
  const rateAt = (offset: number) => (bytes[offset + 2] as number) >> 4;
  return { bytes, offsets, isVariable: offsets.some((offset) => rateAt(offset) !== rateAt(0)) };
}

/** Encoders differ in whether they count the describing frame itself. */
function fits(description: Uint8Array, { bytes, offsets }: Frames): boolean {
  const { frames, fileBytes } = readDescription(description) as Description;
  const isEqual = (declared: number, real: number, tolerance: number) =>
    declared === 0 || Math.abs(declared - real) <= tolerance;
  return (
    (frames > 0 || fileBytes > 0) &&
    isEqual(frames, offsets.length, 1) &&
    isEqual(fileBytes, description.length + bytes.length, description.length)
  );
}

interface Described {
  /** Of a frame of the same sound. */
  readonly header: Uint8Array;
  readonly frames: number;
  /** Without the frame that describes them. */
  readonly bytes: number;
  readonly isVariable: boolean;
  /** Where the frame of that number begins. */
  offsetOf(frame: number): number;
}

/** A silent frame of the same sound, with the numbers in its unused bytes. */
export function describe({ header: given, frames, bytes, isVariable, offsetOf }: Described): Uint8Array {
  const header = Uint8Array.from(given);
  header[1] = (header[1] as number) | NO_CRC;
  const xing = xingOffset(header);
  const sampleRate = (header[2] as number) & 0x0c;
  let length = 0;
  for (let bitRate = 1; length < xing + XING_BYTES; bitRate++) {
    header[2] = (bitRate << 4) | sampleRate;
    length = frameLength(header) ?? Number.POSITIVE_INFINITY;
  }
  const frame = new Uint8Array(length);
  frame.set(header);
  frame.set(new TextEncoder().encode(isVariable ? 'Xing' : 'Info'), xing);
  const view = new DataView(frame.buffer, xing);
  const fileBytes = length + bytes;
  view.setUint32(4, HAS_FRAMES_BYTES_AND_TOC);
  view.setUint32(8, frames);
  view.setUint32(12, fileBytes);
  for (let entry = 0; entry < TOC_ENTRIES; entry++) {
    const offset = length + offsetOf(Math.floor((entry * frames) / TOC_ENTRIES));
    view.setUint8(16 + entry, Math.floor((offset * 256) / fileBytes));
  }
  return frame;
}

export const RIFF_HEADER_BYTES = 12;
export const WAVE_CHUNK_HEADER_BYTES = 8;
/** The size field of a RIFF chunk does not count the identifier and itself. */
export const RIFF_SIZE_EXCLUDES = 8;
/** Writers that can't seek back put 0, or a number near 2^31 or 2^32: a size of at least this is unknown. */
const STREAMING_SIZE = 0x7000_0000;

/** The declared size; undefined if the writer could not know it. */
export const writtenSize = (size: number): number | undefined =>
  size === 0 || size >= STREAMING_SIZE ? undefined : size;

/** Writes the real sizes into the header of a whole WAV file. */
function writeSizes(wave: Uint8Array): void {
  if (wave.length < RIFF_HEADER_BYTES || !matches(wave, 0, 'RIFF')) return;
  const view = new DataView(wave.buffer, wave.byteOffset, wave.byteLength);
  view.setUint32(4, wave.length - RIFF_SIZE_EXCLUDES, true);
  for (let at = RIFF_HEADER_BYTES; at + WAVE_CHUNK_HEADER_BYTES <= wave.length; ) {
    const size = view.getUint32(at + 4, true);
    const content = at + WAVE_CHUNK_HEADER_BYTES;
    if (matches(wave, at, 'data')) {
      if (writtenSize(size) === undefined) view.setUint32(at + 4, wave.length - content, true);
      return;
    }
    at = content + size + (size % 2);
  }
}
