import type { AudioCheck, AudioFault } from './audio-check.ts';

/** Bytes of an MPEG audio frame header (ISO/IEC 11172-3, 2.4.1.3). */
export const FRAME_HEADER_BYTES = 4;
/** Bytes of an ID3v2 tag header, and of the footer that version 2.4 may append (id3v2.4.0-structure, 3.1 and 3.4). */
export const ID3_HEADER_BYTES = 10;

/** Layer III bit rates in kbit/s by index: MPEG 1, then MPEG 2 and 2.5. Index 0 (free format) has no known length. */
const BIT_RATES = [
  [0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320],
  [0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160],
] as const;
/** Sampling rates of MPEG 1 in Hz by index; MPEG 2 has half of them, MPEG 2.5 a quarter. */
const SAMPLE_RATES = [44100, 48000, 32000] as const;

/**
 * Length in bytes of the MPEG Layer III frame whose header starts at `offset`, header included; undefined when the
 * four bytes are no such header (ISO/IEC 11172-3 and 13818-3): other layers, AAC's ADTS, reserved values, free format.
 */
export function frameLength(bytes: Uint8Array, offset = 0): number | undefined {
  if (bytes.length < offset + FRAME_HEADER_BYTES || bytes[offset] !== 0xff) return undefined;
  const b1 = bytes[offset + 1] as number;
  const b2 = bytes[offset + 2] as number;
  const b3 = bytes[offset + 3] as number;
  if ((b1 & 0xe0) !== 0xe0) return undefined;
  const version = (b1 >> 3) & 3;
  const layer = (b1 >> 1) & 3;
  if (version === 1 || layer !== 1 || (b3 & 3) === 2) return undefined;
  const isMpeg1 = version === 3;
  const kilobits = BIT_RATES[isMpeg1 ? 0 : 1][b2 >> 4];
  const fullRate = SAMPLE_RATES[(b2 >> 2) & 3];
  if (!kilobits || !fullRate) return undefined;
  const sampleRate = isMpeg1 ? fullRate : version === 2 ? fullRate / 2 : fullRate / 4;
  const padding = (b2 >> 1) & 1;
  return Math.floor(((isMpeg1 ? 144_000 : 72_000) * kilobits) / sampleRate) + padding;
}

/** Samples per second of the frame whose header, known to be one, starts at `offset`. */
export function frameRate(bytes: Uint8Array, offset = 0): number {
  const version = versionOf(bytes, offset);
  const fullRate = SAMPLE_RATES[((bytes[offset + 2] as number) >> 2) & 3] as number;
  return version === 3 ? fullRate : version === 2 ? fullRate / 2 : fullRate / 4;
}

/** How long the frame plays whose header, known to be one, starts at `offset`: 1152 samples of MPEG 1, else 576. */
export const frameSeconds = (bytes: Uint8Array, offset = 0): number =>
  (versionOf(bytes, offset) === 3 ? 1152 : 576) / frameRate(bytes, offset);

const versionOf = (bytes: Uint8Array, offset: number): number => ((bytes[offset + 1] as number) >> 3) & 3;

/** Length in bytes of the ID3v2 tag whose header starts the bytes, header and footer included; undefined for no tag. */
export function id3Length(bytes: Uint8Array): number | undefined {
  const [i, d, three, major, revision, flags = 0, s3 = 0, s2 = 0, s1 = 0, s0 = 0] = bytes;
  if (bytes.length < ID3_HEADER_BYTES || i !== 0x49 || d !== 0x44 || three !== 0x33) return undefined;
  if (major === 0xff || revision === 0xff || (s3 | s2 | s1 | s0) & 0x80) return undefined;
  const footer = flags & 0x10 ? ID3_HEADER_BYTES : 0;
  return ID3_HEADER_BYTES + (s3 << 21) + (s2 << 14) + (s1 << 7) + s0 + footer;
}

/**
 * Walks from frame header to frame header while an MP3 streams by, without keeping its bytes. ID3v2 tags and zero
 * padding between frames are skipped. Anything else (ID3v1, APE, garbage) ends the walk: from there on the length of
 * the audio is unknown, and no fault is reported.
 */
export class MpegAudioCheck implements AudioCheck {
  #skip = 0;
  #frames = 0;
  #isLost = false;
  /** First bytes of the header at the current boundary, when a chunk ended inside it. */
  readonly #header = new Uint8Array(ID3_HEADER_BYTES);
  #headerLength = 0;
  /** Second byte of the last frame header: version, layer and protection, which all frames of a stream share. */
  #frameKind = 0;

  push(chunk: Uint8Array): void {
    let position = 0;
    while (!this.#isLost && position < chunk.length) {
      if (this.#skip > 0) {
        const step = Math.min(this.#skip, chunk.length - position);
        this.#skip -= step;
        position += step;
        continue;
      }
      const byte = chunk[position++] as number;
      if (this.#headerLength === 0 && byte === 0) continue;
      this.#header[this.#headerLength++] = byte;
      const needed = this.#header[0] === 0x49 ? ID3_HEADER_BYTES : FRAME_HEADER_BYTES;
      if (this.#headerLength === needed) this.#enter(needed);
    }
  }

  #enter(headerBytes: number): void {
    const isTag = headerBytes === ID3_HEADER_BYTES;
    const length = isTag ? id3Length(this.#header) : frameLength(this.#header);
    if (length === undefined) {
      this.#isLost = true;
      return;
    }
    this.#skip = length - headerBytes;
    this.#headerLength = 0;
    if (isTag) return;
    this.#frames++;
    this.#frameKind = this.#header[1] as number;
  }

  end(): AudioFault | undefined {
    if (this.#isLost) return undefined;
    if (this.#skip > 0) return 'truncated';
    if (this.#frames === 0) return 'no audio';
    return this.#isCutFrameHeader() ? 'truncated' : undefined;
  }

  #isCutFrameHeader(): boolean {
    if (this.#headerLength === 0 || this.#header[0] !== 0xff) return false;
    return this.#headerLength === 1 || this.#header[1] === this.#frameKind;
  }
}
