import { type AudioFault, type AudioReader, asBuffer, matches, type ReaderOptions } from './audio-reader.ts';

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

/** In Hz, of a valid frame header. */
export function frameRate(bytes: Uint8Array, offset = 0): number {
  const version = versionOf(bytes, offset);
  const fullRate = SAMPLE_RATES[((bytes[offset + 2] as number) >> 2) & 3] ?? 0;
  if (version === 3) return fullRate;
  return version === 2 ? fullRate / 2 : fullRate / 4;
}

/** Duration of the frame whose valid header is at `offset`: 1152 samples of MPEG 1, otherwise 576. */
export const frameSeconds = (bytes: Uint8Array, offset = 0): number =>
  (versionOf(bytes, offset) === 3 ? 1152 : 576) / frameRate(bytes, offset);

const versionOf = (bytes: Uint8Array, offset: number): number => ((bytes[offset + 1] as number) >> 3) & 3;

/** Length in bytes of an ID3v2 tag at the start, header and footer included; undefined without one. */
export function id3Length(bytes: Uint8Array): number | undefined {
  const [i, d, three, major, revision, flags = 0, s3 = 0, s2 = 0, s1 = 0, s0 = 0] = bytes;
  if (bytes.length < ID3_HEADER_BYTES || i !== 0x49 || d !== 0x44 || three !== 0x33) return undefined;
  if (major === 0xff || revision === 0xff || (s3 | s2 | s1 | s0) & 0x80) return undefined;
  const footer = flags & 0x10 ? ID3_HEADER_BYTES : 0;
  return ID3_HEADER_BYTES + (s3 << 21) + (s2 << 14) + (s1 << 7) + s0 + footer;
}

interface Unit {
  readonly kind: 'frame' | 'description' | 'leading tag' | 'trailing tag' | 'padding';
  readonly length: number;
  readonly fileBytes?: number;
}

const EMPTY = Buffer.alloc(0);
const ID3V1_BYTES = 128;
const ID3V1_EXTENDED_BYTES = 227;
const APE_HEADER_BYTES = 32;
const APE_IS_HEADER = 0x2000_0000;
const VBRI_OFFSET = 36;
const DESCRIPTION_BYTES = 52;

const TAGS: readonly { magic: string; needed: number; read(bytes: Buffer): Unit | undefined }[] = [
  {
    magic: 'ID3',
    needed: ID3_HEADER_BYTES,
    read(bytes) {
      const length = id3Length(bytes);
      const hasFooter = ((bytes[5] as number) & 0x10) !== 0;
      return length === undefined ? undefined : { kind: hasFooter ? 'trailing tag' : 'leading tag', length };
    },
  },
  {
    magic: 'TAG',
    needed: 4,
    read: (bytes) => ({ kind: 'trailing tag', length: bytes[3] === 0x2b ? ID3V1_EXTENDED_BYTES : ID3V1_BYTES }),
  },
  {
    magic: 'APETAGEX',
    needed: APE_HEADER_BYTES,
    read(bytes) {
      const isHeader = (bytes.readUInt32LE(20) & APE_IS_HEADER) !== 0;
      return { kind: 'trailing tag', length: APE_HEADER_BYTES + (isHeader ? bytes.readUInt32LE(12) : 0) };
    },
  },
];

/** Reads what the bytes start with: `more` if they are too few, undefined for what does not belong in an MP3. */
function readUnit(bytes: Buffer): Unit | 'more' | undefined {
  if (bytes[0] === 0) {
    const length = bytes.findIndex((byte) => byte !== 0);
    return { kind: 'padding', length: length < 0 ? bytes.length : length };
  }
  const tag = TAGS.find(({ magic }) => matches(bytes, 0, magic));
  if (tag) return bytes.length < tag.needed ? 'more' : tag.read(bytes);
  if (bytes[0] !== 0xff) return undefined;
  if (bytes.length < FRAME_HEADER_BYTES) return 'more';
  const length = frameLength(bytes);
  if (length === undefined) return undefined;
  const needed = Math.min(length, DESCRIPTION_BYTES);
  if (bytes.length < needed) return 'more';
  const fileBytes = describedBytes(bytes.subarray(0, needed));
  return fileBytes === undefined ? { kind: 'frame', length } : { kind: 'description', length, fileBytes };
}

/** The file size that a Xing, Info or VBRI frame declares, 0 if it declares none; undefined for audio. */
function describedBytes(frame: Buffer): number | undefined {
  const isMpeg1 = (((frame[1] as number) >> 3) & 3) === 3;
  const isMono = (frame[3] as number) >> 6 === 3;
  const start = FRAME_HEADER_BYTES + (isMpeg1 ? (isMono ? 17 : 32) : isMono ? 9 : 17);
  const readBytes = (at: number) => (at + 4 <= frame.length ? frame.readUInt32BE(at) : 0);
  const name = frame.toString('latin1', start, start + 4);
  if (name === 'Xing' || name === 'Info') {
    const flags = readBytes(start + 4);
    return flags & 2 ? readBytes(start + 8 + (flags & 1 ? 4 : 0)) : 0;
  }
  return frame.toString('latin1', VBRI_OFFSET, VBRI_OFFSET + 4) === 'VBRI' ? readBytes(VBRI_OFFSET + 10) : undefined;
}

/**
 * Walks from frame to frame (R68). What precedes the first frame is passed on, but no later tags and padding, so that
 * concatenated files become one. A frame that describes its file is passed on only if that file is the whole body:
 * otherwise players would stop early or refuse the file.
 */
export class MpegAudioReader implements AudioReader {
  readonly #options: ReaderOptions;
  #rest: Buffer = EMPTY;
  #missing = 0;
  #isPassed = false;
  #position = 0;
  #frames = 0;
  /** A tag or a description has begun a file, which has no frame yet. */
  #isBegun = false;
  #fileStart = 0;
  #fileBytes = 0;

  constructor(options: ReaderOptions) {
    this.#options = options;
  }

  get hasAudio(): boolean {
    return this.#frames > 1 || (this.#frames === 1 && this.#missing === 0);
  }

  push(chunk: Uint8Array): AudioFault | undefined {
    const bytes = this.#rest.length > 0 ? Buffer.concat([this.#rest, chunk]) : asBuffer(chunk);
    this.#rest = EMPTY;
    let passFrom = 0;
    let at = 0;
    const skipTo = (next: number) => {
      if (at > passFrom) this.#options.pass(bytes.subarray(passFrom, at));
      passFrom = next;
    };
    while (at < bytes.length) {
      if (this.#missing === 0) {
        const unit = readUnit(bytes.subarray(at));
        if (unit === undefined) return 'damaged';
        if (unit === 'more') {
          this.#rest = bytes.subarray(at);
          skipTo(bytes.length);
          return undefined;
        }
        const fault = this.#enter(unit);
        if (fault) return fault;
      }
      const step = Math.min(this.#missing, bytes.length - at);
      if (!this.#isPassed) skipTo(at + step);
      this.#missing -= step;
      this.#position += step;
      at += step;
    }
    skipTo(at);
    return undefined;
  }

  #enter({ kind, length, fileBytes = 0 }: Unit): AudioFault | undefined {
    this.#missing = length;
    this.#isPassed = kind === 'frame' || (kind.endsWith('tag') && this.#frames === 0);
    if (kind === 'frame') {
      this.#frames++;
      this.#isBegun = false;
    }
    if (kind !== 'leading tag' && kind !== 'description') return undefined;
    if (!this.#isBegun) {
      if (this.#isFileCut()) return 'truncated';
      this.#isBegun = true;
      this.#fileStart = this.#position;
      this.#fileBytes = 0;
    }
    if (kind === 'description') {
      this.#fileBytes = fileBytes;
      const { bodyBytes } = this.#options;
      const isWholeBody = bodyBytes !== undefined && this.#position + fileBytes + ID3V1_BYTES >= bodyBytes;
      this.#isPassed = this.#frames === 0 && isWholeBody;
    }
    return undefined;
  }

  end(): AudioFault | undefined {
    if (this.#missing > 0 || this.#rest.length > 0) return 'truncated';
    if (this.#frames === 0) return 'no audio';
    return this.#isBegun || this.#isFileCut() ? 'truncated' : undefined;
  }

  #isFileCut(): boolean {
    return this.#position - this.#fileStart < this.#fileBytes;
  }
}
