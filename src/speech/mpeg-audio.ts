import { matches } from '../lib/bytes.ts';
import type { AudioReader, ReaderOptions } from './audio-format.ts';
import {
  DESCRIPTION_BYTES,
  FRAME_HEADER_BYTES,
  frameLength,
  frameSeconds,
  ID3_HEADER_BYTES,
  id3Length,
  readDescription,
  readSideInformation,
  soundOf,
} from './mpeg-frame.ts';
import type { AudioFault } from './provider.ts';

export const asBuffer = (bytes: Uint8Array): Buffer => Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);

interface Unit {
  readonly kind: 'frame' | 'description' | 'leading tag' | 'appended tag' | 'trailing tag' | 'padding';
  readonly length: number;
  readonly fileBytes?: number;
  /** Of a frame: what `soundOf` returns. */
  readonly sound?: number;
}

const EMPTY = Buffer.alloc(0);
const ID3V1_BYTES = 128;
const ID3V1_EXTENDED_BYTES = 227;
const APE_HEADER_BYTES = 32;
const APE_IS_HEADER = 0x2000_0000;

const TAGS: readonly { magic: string; needed: number; read(bytes: Buffer): Unit | undefined }[] = [
  {
    magic: 'ID3',
    needed: ID3_HEADER_BYTES,
    read(bytes) {
      const length = id3Length(bytes);
      const hasFooter = ((bytes[5] as number) & 0x10) !== 0;
      return length === undefined ? undefined : { kind: hasFooter ? 'appended tag' : 'leading tag', length };
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

/** Reads what begins at `at`: `more` if the bytes are too few, undefined for what does not belong in an MP3. */
function readUnit(bytes: Buffer, at: number): Unit | 'more' | undefined {
  if (bytes[at] === 0xff) return readFrame(bytes, at);
  const rest = bytes.subarray(at);
  if (rest[0] === 0) {
    const length = rest.findIndex((byte) => byte !== 0);
    return { kind: 'padding', length: length < 0 ? rest.length : length };
  }
  const tag = TAGS.find(({ magic }) => matches(rest, 0, magic));
  if (!tag) return undefined;
  return rest.length < tag.needed ? 'more' : tag.read(rest);
}

function readFrame(bytes: Buffer, at: number): Unit | 'more' | undefined {
  if (bytes.length < at + FRAME_HEADER_BYTES) return 'more';
  const length = frameLength(bytes, at);
  if (length === undefined) return undefined;
  if (bytes.length < at + Math.min(length, DESCRIPTION_BYTES)) return 'more';
  const description = readDescription(bytes, at);
  const sound = soundOf(bytes, at);
  return description ? { kind: 'description', length, sound, ...description } : { kind: 'frame', length, sound };
}

/**
 * Walks from frame to frame (R68). Of what is no frame, only an ID3v2 tag at the start is passed on, so that
 * concatenated files become one. Players play only the first part of an MP3 whose rate or channels change.
 *
 * A frame that describes its file is passed on only if that file is the whole body: otherwise players would stop early
 * or refuse the file. The first one that is not passed on stays in `description`.
 */
export class MpegAudioReader implements AudioReader {
  readonly #options: ReaderOptions;
  #rest: Buffer = EMPTY;
  #missing = 0;
  #isPassed = false;
  #position = 0;
  #frames = 0;
  #frameSeconds = 0;
  #isSilent = true;
  /** A tag or a description has begun a file, which has no frame yet. */
  #isBegun = false;
  #fileStart = 0;
  #fileBytes = 0;
  #sound: number | undefined;
  #description: Buffer[] | undefined;
  #isDescription = false;

  constructor(options: ReaderOptions) {
    this.#options = options;
  }

  get hasAudio(): boolean {
    return this.#frames > 1 || (this.#frames === 1 && this.#missing === 0);
  }

  get seconds(): number {
    return this.#frames * this.#frameSeconds;
  }

  get isSilent(): boolean {
    return this.#isSilent;
  }

  get description(): Buffer | undefined {
    return this.#description && Buffer.concat(this.#description);
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
        const unit = readUnit(bytes, at);
        if (unit === undefined) return 'damaged';
        if (unit === 'more') {
          this.#rest = bytes.subarray(at);
          skipTo(bytes.length);
          return undefined;
        }
        const fault = this.#enter(unit, bytes, at);
        if (fault) return fault;
      }
      const step = Math.min(this.#missing, bytes.length - at);
      if (!this.#isPassed) skipTo(at + step);
      if (this.#isDescription) this.#description?.push(Buffer.from(bytes.subarray(at, at + step)));
      this.#missing -= step;
      this.#position += step;
      at += step;
    }
    skipTo(at);
    return undefined;
  }

  #enter({ kind, length, fileBytes = 0, sound }: Unit, bytes: Buffer, at: number): AudioFault | undefined {
    this.#sound ??= sound;
    if (sound !== undefined && sound !== this.#sound) return 'several files';
    this.#missing = length;
    this.#isDescription = false;
    const isFirstTag = this.#position === 0 && (kind === 'leading tag' || kind === 'appended tag');
    this.#isPassed = kind === 'frame' || (isFirstTag && !this.#options.framesOnly);
    if (kind === 'frame') {
      this.#frames++;
      this.#frameSeconds ||= frameSeconds(bytes, at);
      this.#isSilent &&= readSideInformation(bytes, at).isSilent;
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
      this.#isDescription = this.#frames === 0 && !isWholeBody && this.#description === undefined;
      if (this.#isDescription) this.#description = [];
    }
    return undefined;
  }

  end(): AudioFault | undefined {
    if (this.#missing > 0 || this.#rest.length > 0) return 'truncated';
    if (this.#frames === 0) return 'no audio';
    return this.#isBegun || this.#isFileCut() ? 'truncated' : undefined;
  }

  #isFileCut(): boolean {
    // A part may have been read before, without the tags behind it.
    return !this.#options.framesOnly && this.#position - this.#fileStart < this.#fileBytes;
  }
}
