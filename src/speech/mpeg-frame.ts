import { matches } from '../lib/bytes.ts';

export const FRAME_HEADER_BYTES = 4;
/** Of an ID3v2 tag header, and of the footer that version 2.4 may append (id3v2.4.0-structure, 3.1 and 3.4). */
export const ID3_HEADER_BYTES = 10;

const BIT_RATES = [
  [0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320],
  [0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160],
] as const;
/** MPEG 1, in Hz by index; MPEG 2 has half of them, MPEG 2.5 a quarter. */
const SAMPLE_RATES = [44100, 48000, 32000] as const;

/** Length in bytes of the MPEG Layer III frame at `offset`; undefined without its header (ISO/IEC 11172-3). */
export function frameLength(bytes: Uint8Array, offset = 0): number | undefined {
  if (bytes.length < offset + FRAME_HEADER_BYTES || bytes[offset] !== 0xff) return undefined;
  const b1 = bytes[offset + 1] as number;
  const b2 = bytes[offset + 2] as number;
  const b3 = bytes[offset + 3] as number;
  const version = versionOf(bytes, offset);
  const layer = (b1 >> 1) & 3;
  if ((b1 & 0xe0) !== 0xe0 || version === 1 || layer !== 1 || (b3 & 3) === 2) return undefined;
  const kilobits = BIT_RATES[version === 3 ? 0 : 1][b2 >> 4];
  const rate = frameRate(bytes, offset);
  if (!kilobits || !rate) return undefined;
  const padding = (b2 >> 1) & 1;
  return Math.floor(((version === 3 ? 144_000 : 72_000) * kilobits) / rate) + padding;
}

/** Where each whole frame from the start on begins, and where the last one ends. */
export function wholeFrames(bytes: Uint8Array): { readonly offsets: readonly number[]; readonly end: number } {
  const offsets: number[] = [];
  let end = 0;
  for (let length = frameLength(bytes); length !== undefined && end + length <= bytes.length; ) {
    offsets.push(end);
    end += length;
    length = frameLength(bytes, end);
  }
  return { offsets, end };
}

/** In Hz, of a valid frame header. */
export function frameRate(bytes: Uint8Array, offset = 0): number {
  const version = versionOf(bytes, offset);
  const fullRate = SAMPLE_RATES[((bytes[offset + 2] as number) >> 2) & 3] ?? 0;
  if (version === 3) return fullRate;
  return version === 2 ? fullRate / 2 : fullRate / 4;
}

/** Duration of the frame whose valid header is at `offset`: 1152 samples of MPEG 1, otherwise 576. */
export const frameSeconds = (bytes: Uint8Array, offset = 0): number =>
  frameSamples(bytes, offset) / frameRate(bytes, offset);

/** The bits of a valid frame header that tell rate and channels: frames of one sound have the same. */
export const soundOf = (bytes: Uint8Array, offset = 0): number =>
  (versionOf(bytes, offset) << 3) | ((bytes[offset + 2] as number) & 0x0c) | (isMono(bytes, offset) ? 1 : 0);

/** Whether the frame whose valid header is at `offset` has one channel; otherwise it has two. */
const isMono = (bytes: Uint8Array, offset = 0): boolean => (bytes[offset + 3] as number) >> 6 === 3;

/** Samples of the frame whose valid header is at `offset`. */
export const frameSamples = (bytes: Uint8Array, offset = 0): number => (versionOf(bytes, offset) === 3 ? 1152 : 576);

/**
 * What the side information of a whole frame tells (ISO/IEC 11172-3, 2.4.1.7): how many bytes of the frames before it
 * the frame needs, and whether it has no sound of its own.
 */
export function readSideInformation(bytes: Uint8Array, offset = 0): { reservoirBytes: number; isSilent: boolean } {
  const isFull = versionOf(bytes, offset) === 3;
  const channels = isMono(bytes, offset) ? 1 : 2;
  const hasCrc = ((bytes[offset + 1] as number) & 1) === 0;
  const start = (offset + FRAME_HEADER_BYTES + (hasCrc ? 2 : 0)) * 8;
  // At most 12 bits, which lie in three bytes.
  const read = (at: number, length: number) => {
    const byte = (start + at) >> 3;
    const three = ((bytes[byte] as number) << 16) | ((bytes[byte + 1] as number) << 8) | (bytes[byte + 2] as number);
    return (three >> (24 - (at & 7) - length)) & ((1 << length) - 1);
  };
  const size = isFull ? 59 : 63;
  const first = isFull ? (channels === 1 ? 18 : 20) : 8 + channels;
  const end = first + (isFull ? 2 : 1) * channels * size;
  let isSilent = true;
  for (let at = first; isSilent && at < end; at += size) isSilent = read(at, 12) === 0;
  return { reservoirBytes: read(0, isFull ? 9 : 8), isSilent };
}

const versionOf = (bytes: Uint8Array, offset: number): number => ((bytes[offset + 1] as number) >> 3) & 3;

/** Length in bytes of an ID3v2 tag at the start, header and footer included; undefined without one. */
export function id3Length(bytes: Uint8Array): number | undefined {
  const [i, d, three, major, revision, flags = 0, s3 = 0, s2 = 0, s1 = 0, s0 = 0] = bytes;
  if (bytes.length < ID3_HEADER_BYTES || i !== 0x49 || d !== 0x44 || three !== 0x33) return undefined;
  if (major === 0xff || revision === 0xff || (s3 | s2 | s1 | s0) & 0x80) return undefined;
  const footer = flags & 0x10 ? ID3_HEADER_BYTES : 0;
  return ID3_HEADER_BYTES + (s3 << 21) + (s2 << 14) + (s1 << 7) + s0 + footer;
}

const NAME_BYTES = 4;
const VBRI_OFFSET = 36;
/** As many bytes of a frame show whether it describes its file. */
export const DESCRIPTION_BYTES = 52;

/** What a Xing, Info or VBRI frame says of its file; 0 for what it leaves out. */
export interface Description {
  readonly fileBytes: number;
  readonly frames: number;
}

/** Where Xing and Info stand in a frame without CRC: behind the side information. */
export const xingOffset = (bytes: Uint8Array, offset = 0): number =>
  FRAME_HEADER_BYTES +
  (versionOf(bytes, offset) === 3 ? (isMono(bytes, offset) ? 17 : 32) : isMono(bytes, offset) ? 9 : 17);

/** Undefined for a frame with audio. */
export function readDescription(bytes: Uint8Array, offset = 0): Description | undefined {
  const [xing, vbri] = [offset + xingOffset(bytes, offset), offset + VBRI_OFFSET];
  const isXing = matches(bytes, xing, 'Xing') || matches(bytes, xing, 'Info');
  if (!isXing && !matches(bytes, vbri, 'VBRI')) return undefined;
  const end = Math.min(bytes.length, offset + (frameLength(bytes, offset) ?? 0));
  if ((isXing ? xing : vbri) + NAME_BYTES > end) return undefined;
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const read = (at: number) => (at + 4 <= end ? view.getUint32(at) : 0);
  if (!isXing) return { fileBytes: read(vbri + 10), frames: read(vbri + 14) };
  const flags = read(xing + 4);
  const hasFrames = flags & 1;
  return { frames: hasFrames ? read(xing + 8) : 0, fileBytes: flags & 2 ? read(xing + (hasFrames ? 12 : 8)) : 0 };
}

/** Where the first frame with audio begins: behind a tag, and a frame that describes the file. */
export function audioStart(audio: Uint8Array): number {
  const start = id3Length(audio) ?? 0;
  return start + (readDescription(audio, start) ? (frameLength(audio, start) ?? 0) : 0);
}
