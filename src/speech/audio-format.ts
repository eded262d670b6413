import { matches } from '../lib/bytes.ts';
import { MpegAudioReader } from './mpeg-audio.ts';
import { FRAME_HEADER_BYTES, frameLength, ID3_HEADER_BYTES, id3Length } from './mpeg-frame.ts';
import type { AudioFault, AudioType } from './provider.ts';
import { WaveAudioReader } from './wave-audio.ts';
import { RIFF_HEADER_BYTES } from './whole-audio.ts';

/** Extracts what can be played from a body while it streams by, and checks that it is whole (R68). */
export interface AudioReader {
  readonly hasAudio: boolean;
  /** The playing time so far. */
  readonly seconds: number;
  /** Whether nothing but digital silence was read so far. A faint noise is none. */
  readonly isSilent: boolean;
  /** A frame that describes the first file of the body, and was not passed on. */
  readonly description?: Uint8Array | undefined;
  push(bytes: Uint8Array): AudioFault | undefined;
  end(): AudioFault | undefined;
}

export interface ReaderOptions {
  readonly pass: (bytes: Uint8Array) => void;
  readonly bodyBytes: number | undefined;
  /** Passes no tag: what is read is a part of a file. */
  readonly framesOnly?: boolean;
}

export const MAGIC_BYTES = RIFF_HEADER_BYTES;

/** By magic bytes: ID3v2 or APE tag, MPEG Layer III frame, or RIFF/WAVE. Undefined while more bytes are needed (R56). */
export function detectAudioType(bytes: Uint8Array): AudioType | 'not-audio' | undefined {
  if (bytes.length === 0) return undefined;
  if (matches(bytes, 0, 'RIFF') && matches(bytes, 8, 'WAVE')) {
    return bytes.length < RIFF_HEADER_BYTES ? undefined : 'audio/wav';
  }
  if (matches(bytes, 0, 'APETAGEX')) return bytes.length < 8 ? undefined : 'audio/mpeg';
  if (matches(bytes, 0, 'ID3')) {
    if (bytes.length < ID3_HEADER_BYTES) return undefined;
    return id3Length(bytes) === undefined ? 'not-audio' : 'audio/mpeg';
  }
  if (bytes[0] !== 0xff) return 'not-audio';
  if (bytes.length < FRAME_HEADER_BYTES) return undefined;
  return frameLength(bytes) === undefined ? 'not-audio' : 'audio/mpeg';
}

export const audioReader = (type: AudioType, options: ReaderOptions): AudioReader =>
  type === 'audio/mpeg' ? new MpegAudioReader(options) : new WaveAudioReader(options);
