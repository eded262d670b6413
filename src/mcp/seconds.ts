import { frameLength, frameSeconds, id3Length } from '../speech/mpeg-audio.ts';
import { waveChunks } from '../speech/wave-chunks.ts';

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
  let bytesPerSecond = 0;
  for (const { name, content } of waveChunks(audio)) {
    if (name === 'fmt ' && content.length >= BYTE_RATE_OFFSET + 4)
      bytesPerSecond = content.readUInt32LE(BYTE_RATE_OFFSET);
    if (name === 'data') return bytesPerSecond > 0 ? content.length / bytesPerSecond : undefined;
  }
  return undefined;
}
