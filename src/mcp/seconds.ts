import { frameLength, frameSeconds, id3Length } from '../speech/mpeg-audio.ts';
import { isPlayable } from '../speech/wave-audio.ts';
import { waveChunks } from '../speech/wave-chunks.ts';

/** Fewer than any codec makes of a second. */
const LEAST_BYTES_PER_SECOND = 1_000;

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
    if (name === 'fmt ' && content.length >= 16 && isPlayable(content.readUInt16LE(2), content.readUInt32LE(4))) {
      bytesPerSecond = content.readUInt32LE(8);
    }
    if (name === 'data') {
      return bytesPerSecond >= LEAST_BYTES_PER_SECOND ? content.length / bytesPerSecond : undefined;
    }
  }
  return undefined;
}
