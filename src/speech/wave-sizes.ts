import { matches } from '../lib/bytes.ts';

export const RIFF_HEADER_BYTES = 12;
export const WAVE_CHUNK_HEADER_BYTES = 8;
/** The size field of a RIFF chunk does not count the identifier and itself. */
export const RIFF_SIZE_EXCLUDES = 8;
/** Writers that can't seek back put 0, or a number near 2^31 or 2^32: a size of at least this is unknown. */
const STREAMING_SIZE = 0x7000_0000;

/** The declared size; undefined if the writer could not know it. */
export const writtenSize = (size: number): number | undefined =>
  size === 0 || size >= STREAMING_SIZE ? undefined : size;

/** Writes the real sizes into the header of a whole WAV file. */
export function writeSizes(wave: Uint8Array): void {
  if (wave.length < RIFF_HEADER_BYTES || !matches(wave, 0, 'RIFF')) return;
  const view = new DataView(wave.buffer, wave.byteOffset, wave.byteLength);
  view.setUint32(4, wave.length - RIFF_SIZE_EXCLUDES, true);
  for (let at = RIFF_HEADER_BYTES; at + WAVE_CHUNK_HEADER_BYTES <= wave.length; ) {
    const size = view.getUint32(at + 4, true);
    const content = at + WAVE_CHUNK_HEADER_BYTES;
    if (matches(wave, at, 'data')) {
      if (writtenSize(size) === undefined) view.setUint32(at + 4, wave.length - content, true);
      return;
    }
    at = content + size + (size % 2);
  }
}
