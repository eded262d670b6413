import { frameLength, frameSeconds, id3Length } from '../speech/mpeg-audio.ts';

const RIFF_HEADER_BYTES = 12;
const CHUNK_HEADER_BYTES = 8;
/** Where the format chunk tells the bytes of a second. */
const BYTE_RATE_OFFSET = 8;

/** How long the audio plays, in seconds; null where that can't be told from its bytes. */
export function secondsOf(audio: Uint8Array, contentType: 'audio/mpeg' | 'audio/wav'): number | null {
  const seconds = contentType === 'audio/mpeg' ? mpegSeconds(audio) : waveSeconds(audio);
  return seconds === undefined ? null : Math.round(seconds * 1000) / 1000;
}

/** The sum of the frames, whatever their bit rates are. */
function mpegSeconds(audio: Uint8Array): number | undefined {
  let offset = id3Length(audio) ?? 0;
  let seconds = 0;
  for (;;) {
    const length = frameLength(audio, offset);
    if (length === undefined) return seconds === 0 ? undefined : seconds;
    seconds += frameSeconds(audio, offset);
    offset += length;
  }
}

function waveSeconds(audio: Uint8Array): number | undefined {
  const view = new DataView(audio.buffer, audio.byteOffset, audio.byteLength);
  let bytesPerSecond = 0;
  for (let offset = RIFF_HEADER_BYTES; offset + CHUNK_HEADER_BYTES <= audio.length; ) {
    const name = Buffer.from(audio.subarray(offset, offset + 4)).toString('latin1');
    const size = view.getUint32(offset + 4, true);
    const start = offset + CHUNK_HEADER_BYTES;
    if (name === 'fmt ' && start + BYTE_RATE_OFFSET + 4 <= audio.length) {
      bytesPerSecond = view.getUint32(start + BYTE_RATE_OFFSET, true);
    }
    // A writer that could not know the size puts 0 or a huge number there: then it is all that follows.
    if (name === 'data') {
      const follows = audio.length - start;
      return bytesPerSecond > 0 ? (size === 0 ? follows : Math.min(size, follows)) / bytesPerSecond : undefined;
    }
    offset = start + size + (size % 2);
  }
  return undefined;
}
