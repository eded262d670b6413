import type { AudioCheck } from './audio-check.ts';
import { FRAME_HEADER_BYTES, frameLength, ID3_HEADER_BYTES, id3Length, MpegAudioCheck } from './mpeg-audio.ts';
import type { AudioType } from './provider.ts';
import { RIFF_HEADER_BYTES, WaveAudioCheck } from './wave-audio.ts';

/** As many bytes as `detectAudioType` may need. */
export const MAGIC_BYTES = RIFF_HEADER_BYTES;

const matches = (bytes: Uint8Array, offset: number, ascii: string) => {
  for (let i = 0; i < ascii.length && offset + i < bytes.length; i++) {
    if (bytes[offset + i] !== ascii.charCodeAt(i)) return false;
  }
  return true;
};

/**
 * The type of the audio that starts with these bytes, by its magic bytes: an ID3v2 tag or an MPEG Layer III frame
 * header, or `RIFF….WAVE`. `not-audio` once no continuation could make it one of them, undefined while it needs more.
 */
export function detectAudioType(bytes: Uint8Array): AudioType | 'not-audio' | undefined {
  if (bytes.length === 0) return undefined;
  if (matches(bytes, 0, 'RIFF') && matches(bytes, 8, 'WAVE')) {
    return bytes.length < RIFF_HEADER_BYTES ? undefined : 'audio/wav';
  }
  if (matches(bytes, 0, 'ID3')) {
    if (bytes.length < ID3_HEADER_BYTES) return undefined;
    return id3Length(bytes) === undefined ? 'not-audio' : 'audio/mpeg';
  }
  if (bytes[0] !== 0xff) return 'not-audio';
  if (bytes.length < FRAME_HEADER_BYTES) return undefined;
  return frameLength(bytes) === undefined ? 'not-audio' : 'audio/mpeg';
}

/** A fresh check for one body of this type. Give it every byte from the first on. */
export function audioCheck(type: AudioType): AudioCheck {
  return type === 'audio/mpeg' ? new MpegAudioCheck() : new WaveAudioCheck();
}
