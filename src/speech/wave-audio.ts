import { matches } from '../lib/bytes.ts';
import type { AudioReader, ReaderOptions } from './audio-format.ts';
import { asBuffer } from './mpeg-audio.ts';
import type { AudioFault } from './provider.ts';
import { RIFF_HEADER_BYTES, RIFF_SIZE_EXCLUDES, WAVE_CHUNK_HEADER_BYTES, writtenSize } from './whole-audio.ts';

/** The smallest format chunk, and more than any has. */
const FORMAT_BYTES = 16;
const MAX_FORMAT_BYTES = 1024;
/** What every player takes for unknown: some read nothing of a file whose size is 0. */
const UNKNOWN_SIZE = 0xffff_ffff;

const LEAST_RATE = 8_000;
const MOST_RATE = 192_000;
const MOST_CHANNELS = 8;

/** Headers may be hostile: other numbers could make loops and allocations endless. */
export const isPlayable = (channels: number, rate: number): boolean =>
  channels >= 1 && channels <= MOST_CHANNELS && rate >= LEAST_RATE && rate <= MOST_RATE;

const EMPTY = Buffer.alloc(0);

const isRiff = (bytes: Uint8Array, at = 0): boolean => matches(bytes, at, 'RIFF') && matches(bytes, at + 8, 'WAVE');

/** `file` and `chunk` are headers, `padding` is the zero after a chunk of odd size. */
type Part = 'file' | 'chunk' | 'padding' | 'format' | 'other' | 'samples';

interface WaveFile {
  readonly start: number;
  readonly riffSize: number | undefined;
  hasFormat: boolean;
  data: 'sized' | 'unsized' | undefined;
  sampleBytes: number;
}

/**
 * Walks the chunks of a RIFF/WAVE body (R68). The size of the `data` chunk decides whether the audio is whole; if it is
 * unknown, that of the RIFF chunk does.
 *
 * Samples of further files in the same format are appended, unless the first header shows where the samples end. It
 * does not if the sizes are unknown, or if the announced body is longer than they say: it is passed on without sizes.
 */
export class WaveAudioReader implements AudioReader {
  readonly #options: ReaderOptions;
  #part: Part = 'file';
  #rest: Buffer = EMPTY;
  #missing = 0;
  #hasPadding = false;
  #position = 0;
  #file: WaveFile | undefined;
  #head: Buffer[] = [];
  #format = EMPTY;
  #mayBeLonger = false;
  #isFirst = true;
  #hasSamples = false;
  #soundBytes = 0;
  #isSilent = true;

  constructor(options: ReaderOptions) {
    this.#options = options;
  }

  get hasAudio(): boolean {
    return this.#hasSamples;
  }

  get seconds(): number {
    return this.#soundBytes === 0 ? 0 : this.#soundBytes / this.#format.readUInt32LE(8);
  }

  get isSilent(): boolean {
    return this.#isSilent;
  }

  push(chunk: Uint8Array): AudioFault | undefined {
    let bytes = this.#rest.length > 0 ? Buffer.concat([this.#rest, chunk]) : asBuffer(chunk);
    this.#rest = EMPTY;
    while (bytes.length > 0) {
      const step = this.#read(bytes);
      if (typeof step === 'string') return step;
      if (step === 0) {
        this.#rest = bytes;
        return undefined;
      }
      this.#position += step;
      bytes = bytes.subarray(step);
    }
    return undefined;
  }

  end(): AudioFault | undefined {
    const file = this.#file;
    const isUnsized = this.#part === 'samples' && file?.data === 'unsized';
    if (isUnsized) this.#position += this.#takeSamples(this.#rest);
    else if (this.#rest.length > 0 || this.#missing > 0) return 'truncated';
    if (file?.data !== 'sized' && this.#isCut()) return 'truncated';
    if (!this.#hasSamples) return 'no audio';
    if (!file?.data || (file.sampleBytes === 0 && file.riffSize === undefined)) return 'truncated';
    return isUnsized && !this.#isAligned() ? 'truncated' : undefined;
  }

  /** Returns how many of the bytes it has read; 0 if it needs more. */
  #read(bytes: Buffer): number | AudioFault {
    switch (this.#part) {
      case 'file':
        return bytes.length < RIFF_HEADER_BYTES ? 0 : this.#beginFile(bytes.subarray(0, RIFF_HEADER_BYTES));
      case 'chunk':
        return bytes.length < WAVE_CHUNK_HEADER_BYTES ? 0 : this.#beginChunk(bytes);
      case 'format':
        return bytes.length < this.#missing ? 0 : this.#takeFormat(bytes.subarray(0, this.#missing));
      case 'other':
        return this.#takeContent(bytes.subarray(0, this.#missing));
      case 'samples':
        return this.#file?.data === 'sized'
          ? this.#takeSamples(bytes.subarray(0, this.#missing))
          : this.#takeUntilNextFile(bytes);
      case 'padding':
        return this.#takePadding(bytes);
    }
  }

  #beginFile(header: Buffer): number | AudioFault {
    if (!isRiff(header)) return 'damaged';
    if (this.#file && !this.#mayBeLonger) return 'several files';
    this.#isFirst = this.#file === undefined;
    const riffSize = writtenSize(header.readUInt32LE(4));
    this.#file = { start: this.#position, riffSize, hasFormat: false, data: undefined, sampleBytes: 0 };
    this.#part = 'chunk';
    return this.#takeOther(header);
  }

  #beginChunk(bytes: Buffer): number | AudioFault {
    const header = bytes.subarray(0, WAVE_CHUNK_HEADER_BYTES);
    const name = header.toString('latin1', 0, 4);
    const size = header.readUInt32LE(4);
    if (name === 'RIFF') {
      this.#part = 'file';
      return this.#read(bytes);
    }
    if (name === 'data') return this.#beginSamples(header, writtenSize(size));
    if (!/^[\x20-\x7e]{4}$/.test(name)) return 'damaged';
    if (name === 'fmt ' && (size < FORMAT_BYTES || size > MAX_FORMAT_BYTES)) return 'damaged';
    this.#expect(name === 'fmt ' ? 'format' : 'other', size);
    return this.#takeOther(header);
  }

  #takeFormat(format: Buffer): number | AudioFault {
    const [channels, rate, blockBytes] = [format.readUInt16LE(2), format.readUInt32LE(4), format.readUInt16LE(12)];
    if (!isPlayable(channels, rate) || blockBytes === 0) return 'damaged';
    if (this.#isFirst) this.#format = Buffer.from(format);
    const common = Math.min(format.length, this.#format.length);
    if (!format.subarray(0, common).equals(this.#format.subarray(0, common))) return 'several files';
    if (this.#file) this.#file.hasFormat = true;
    return this.#takeContent(format);
  }

  #beginSamples(header: Buffer, size: number | undefined): number | AudioFault {
    const file = this.#file;
    if (!file?.hasFormat || file.data) return 'damaged';
    this.#expect('samples', size ?? Number.POSITIVE_INFINITY);
    this.#takeOther(header);
    file.data = size === undefined ? 'unsized' : 'sized';
    if (this.#isFirst) this.#passHead(size);
    return header.length;
  }

  #passHead(size: number | undefined): void {
    const { bodyBytes, pass } = this.#options;
    const head = Buffer.concat(this.#head);
    const riffSize = this.#file?.riffSize;
    const ends = [size && head.length + size, riffSize && riffSize + RIFF_SIZE_EXCLUDES].filter(
      (end) => end !== undefined,
    );
    const isLonger = ends.length > 0 && bodyBytes !== undefined && Math.max(...ends) + 1 < bodyBytes;
    this.#mayBeLonger = isLonger || size === undefined;
    if (this.#mayBeLonger || riffSize === undefined) head.writeUInt32LE(UNKNOWN_SIZE, 4);
    if (this.#mayBeLonger) head.writeUInt32LE(UNKNOWN_SIZE, head.length - 4);
    pass(head);
  }

  #takeSamples(bytes: Buffer): number {
    if (bytes.length > 0) this.#options.pass(bytes);
    if (this.#file) this.#file.sampleBytes += bytes.length;
    this.#soundBytes += bytes.length;
    const silence = this.#silence();
    this.#isSilent &&= bytes.every((byte) => byte === silence);
    this.#hasSamples ||= (this.#file?.sampleBytes ?? 0) >= this.#blockBytes();
    this.#proceed(bytes.length);
    return bytes.length;
  }

  #takeUntilNextFile(bytes: Buffer): number | AudioFault {
    let next = bytes.indexOf('R');
    while (next >= 0 && !isRiff(bytes, next)) next = bytes.indexOf('R', next + 1);
    if (next !== 0) return this.#takeSamples(next < 0 ? bytes : bytes.subarray(0, next));
    if (bytes.length < RIFF_HEADER_BYTES) return 0;
    if (!this.#isAligned()) return 'truncated';
    this.#missing = 0;
    return this.#beginFile(bytes.subarray(0, RIFF_HEADER_BYTES));
  }

  #takePadding(bytes: Buffer): number | AudioFault {
    this.#part = 'chunk';
    return bytes[0] === 0 ? this.#takeOther(bytes.subarray(0, 1)) : this.#read(bytes);
  }

  #takeContent(bytes: Buffer): number {
    this.#takeOther(bytes);
    this.#proceed(bytes.length);
    return bytes.length;
  }

  /** Reads what is no sample. It is passed on only if no samples of further files may follow. */
  #takeOther(bytes: Buffer): number {
    if (this.#isFirst && !this.#file?.data) this.#head.push(bytes);
    else if (!this.#mayBeLonger) this.#options.pass(bytes);
    return bytes.length;
  }

  #expect(part: Part, size: number): void {
    this.#part = size > 0 ? part : 'chunk';
    this.#missing = size;
    this.#hasPadding = size % 2 === 1;
  }

  #proceed(taken: number): void {
    this.#missing -= taken;
    if (this.#missing === 0) this.#part = this.#hasPadding ? 'padding' : 'chunk';
  }

  #blockBytes = (): number => this.#format.readUInt16LE(12);

  /** Samples of 8 bits are unsigned. */
  #silence = (): number => (this.#format.readUInt16LE(14) === 8 ? 0x80 : 0);

  #isAligned = (): boolean => (this.#file?.sampleBytes ?? 0) % this.#blockBytes() === 0;

  /** Tolerates one missing byte: writers often forget the last chunk's padding byte, or count it without writing it. */
  #isCut(): boolean {
    const { riffSize, start } = this.#file ?? { riffSize: undefined, start: 0 };
    return riffSize !== undefined && riffSize > this.#position - start - RIFF_SIZE_EXCLUDES + 1;
  }
}

export interface WaveChunk {
  readonly name: string;
  readonly content: Buffer;
}

/** The chunks of a whole WAV file. A `data` chunk of unknown size extends to the end. */
export function* waveChunks(audio: Uint8Array): Generator<WaveChunk> {
  const bytes = Buffer.from(audio.buffer, audio.byteOffset, audio.byteLength);
  for (let at = RIFF_HEADER_BYTES; at + WAVE_CHUNK_HEADER_BYTES <= bytes.length; ) {
    const name = bytes.toString('latin1', at, at + 4);
    const declared = bytes.readUInt32LE(at + 4);
    const start = at + WAVE_CHUNK_HEADER_BYTES;
    const size = name === 'data' ? (writtenSize(declared) ?? bytes.length - start) : declared;
    yield { name, content: bytes.subarray(start, start + size) };
    at = start + size + (size % 2);
  }
}
