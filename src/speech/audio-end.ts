import { concatBytes } from '../lib/bytes.ts';
import { FRAME_HEADER_BYTES, frameLength, ID3_HEADER_BYTES, id3Length } from './mpeg-frame.ts';
import type { AudioType } from './provider.ts';

/** `unknown`: the bytes alone do not tell, such as those of a WAV without a size. */
type End = 'cut' | 'whole' | 'unknown';

/** Follows audio that streams by, and tells whether it may end there. Reads headers only; needs nothing of Node.js. */
export interface AudioEnd {
  push(chunk: Uint8Array): void;
  readonly end: End;
}

/**
 * Passes audio on so that its own bytes tell a cut (R55): while more may follow, the byte that completes a frame or
 * sample is held back.
 */
export async function* holdingBack(
  audio: AsyncIterable<Uint8Array>,
  type: AudioType,
): AsyncGenerator<Uint8Array, void> {
  const follower = audioEnd(type);
  let held: Uint8Array | undefined;
  for await (const chunk of audio) {
    if (held) yield held;
    const { passed, rest } = splitEnd(follower, chunk);
    held = rest;
    if (passed.length > 0) yield passed;
  }
  if (held) yield held;
}

/** The chunk without the byte at which the audio could end, and that byte. */
export function splitEnd(
  follower: AudioEnd,
  chunk: Uint8Array,
): { readonly passed: Uint8Array; readonly rest: Uint8Array | undefined } {
  follower.push(chunk);
  if (follower.end === 'cut' || chunk.length === 0) return { passed: chunk, rest: undefined };
  return { passed: chunk.subarray(0, -1), rest: chunk.subarray(-1) };
}

export const audioEnd = (type: AudioType): AudioEnd => (type === 'audio/mpeg' ? mpegEnd() : waveEnd());

const EMPTY = new Uint8Array();
/** More than any header needs. */
const MAX_HEADER_BYTES = 32;
const APE_HEADER_BYTES = 32;
const RIFF_HEADER_BYTES = 12;
const CHUNK_HEADER_BYTES = 8;
/** Up to the size of a sample of all channels. */
const FORMAT_BYTES = CHUNK_HEADER_BYTES + 14;
/** From here on, and at 0, the writer did not know a size. */
const UNKNOWN_SIZE = 0x7000_0000;

/**
 * Length of what begins at `at`, `Infinity` if only the end of the audio ends it; undefined if the bytes are too few.
 * @param position of `at` in the audio
 */
type LengthOf = (bytes: Uint8Array, at: number, position: number) => number | undefined;

/** Skips from header to header. */
class HeaderWalk {
  readonly #lengthOf: LengthOf;
  #header = EMPTY;
  #missing = 0;
  position = 0;

  constructor(lengthOf: LengthOf) {
    this.#lengthOf = lengthOf;
  }

  get isBetween(): boolean {
    return this.#missing === 0 && this.#header.length === 0;
  }

  get isOpen(): boolean {
    return this.#missing === Number.POSITIVE_INFINITY;
  }

  push(chunk: Uint8Array): void {
    for (let at = 0; at < chunk.length; ) {
      if (this.#missing === 0) at = this.#enter(chunk, at);
      const step = Math.min(this.#missing, chunk.length - at);
      this.#missing -= step;
      at += step;
    }
    this.position += chunk.length;
  }

  #enter(chunk: Uint8Array, at: number): number {
    const begun = this.#header;
    const isBegun = begun.length > 0;
    const bytes = isBegun ? concatBytes([begun, chunk.subarray(at, at + MAX_HEADER_BYTES)]) : chunk;
    const from = isBegun ? 0 : at;
    const length = this.#lengthOf(bytes, from, this.position + at - begun.length);
    this.#header = length === undefined ? bytes.slice(from) : EMPTY;
    this.#missing = length === undefined ? 0 : length - begun.length;
    return length === undefined ? chunk.length : at;
  }
}

function mpegEnd(): AudioEnd {
  let frames = 0;
  const walk = new HeaderWalk((all, at) => {
    if (all[at] === 0xff) {
      if (all.length < at + FRAME_HEADER_BYTES) return undefined;
      const length = frameLength(all, at);
      if (length !== undefined) frames += 1;
      return length ?? Number.POSITIVE_INFINITY;
    }
    const bytes = all.subarray(at);
    if (begins(bytes, 'ID3')) {
      return bytes.length < ID3_HEADER_BYTES ? undefined : (id3Length(bytes) ?? Number.POSITIVE_INFINITY);
    }
    if (begins(bytes, 'APETAGEX')) return bytes.length < APE_HEADER_BYTES ? undefined : apeLength(viewOf(bytes));
    return Number.POSITIVE_INFINITY;
  });
  return {
    push: (chunk) => walk.push(chunk),
    get end() {
      if (walk.isOpen) return 'unknown';
      return walk.isBetween && frames > 0 ? 'whole' : 'cut';
    },
  };
}

/** The size counts the items and the footer; bit 29 of the flags marks a header. */
const apeLength = (view: DataView): number =>
  APE_HEADER_BYTES + (view.getUint32(20, true) & 0x2000_0000 ? view.getUint32(12, true) : 0);

function waveEnd(): AudioEnd {
  let fileEnd: number | undefined;
  let blockBytes = 1;
  let samplesStart: number | undefined;
  let samplesEnd: number | undefined;
  const walk = new HeaderWalk((all, at, start) => {
    const bytes = all.subarray(at);
    const view = viewOf(bytes);
    if (start === 0) {
      if (bytes.length < RIFF_HEADER_BYTES) return begins(bytes, 'RIFF') ? undefined : Number.POSITIVE_INFINITY;
      if (!begins(bytes, 'RIFF')) return Number.POSITIVE_INFINITY;
      const size = knownSize(view.getUint32(4, true));
      fileEnd = size && size + CHUNK_HEADER_BYTES;
      return RIFF_HEADER_BYTES;
    }
    const isFormat = begins(bytes, 'fmt ');
    if (bytes.length < (isFormat ? FORMAT_BYTES : CHUNK_HEADER_BYTES)) return undefined;
    if (isFormat) blockBytes = Math.max(1, view.getUint16(CHUNK_HEADER_BYTES + 12, true));
    const size = view.getUint32(4, true);
    if (isFormat && size < FORMAT_BYTES - CHUNK_HEADER_BYTES) return Number.POSITIVE_INFINITY;
    if (!begins(bytes, 'data')) return CHUNK_HEADER_BYTES + size + (size % 2);
    samplesStart = start + CHUNK_HEADER_BYTES;
    const known = knownSize(size);
    if (known !== undefined) samplesEnd = samplesStart + known;
    // Writers often count a padding byte that they do not write.
    else if (fileEnd !== undefined && fileEnd > samplesStart) samplesEnd = fileEnd - 1;
    return Number.POSITIVE_INFINITY;
  });
  return {
    push: (chunk) => walk.push(chunk),
    get end() {
      if (samplesEnd !== undefined) return walk.position >= samplesEnd ? 'whole' : 'cut';
      if (samplesStart === undefined) return walk.isOpen ? 'unknown' : 'cut';
      const samples = walk.position - samplesStart;
      return samples > 0 && samples % blockBytes === 0 ? 'unknown' : 'cut';
    },
  };
}

const knownSize = (size: number): number | undefined => (size === 0 || size >= UNKNOWN_SIZE ? undefined : size);

/** Whether the bytes, or as many as there are, are those of the name. */
function begins(bytes: Uint8Array, name: string): boolean {
  for (let at = 0; at < name.length && at < bytes.length; at++) if (bytes[at] !== name.charCodeAt(at)) return false;
  return true;
}

const viewOf = (bytes: Uint8Array): DataView => new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
