import type { AudioCheck, AudioFault } from './audio-check.ts';

/** Bytes of the RIFF header: `RIFF`, size, `WAVE`. */
export const RIFF_HEADER_BYTES = 12;
/** Bytes of a chunk's header: its name, its size. */
export const WAVE_CHUNK_HEADER_BYTES = 8;
/** The size field of a RIFF chunk does not count the identifier and itself. */
const RIFF_SIZE_EXCLUDES = 8;
/**
 * Writers that can't seek back put 0 or a number near 2^31 or 2^32 where the size belongs (0xFFFFFFFF, 0x7FFFFFFF
 * less a header, 0x7FFFF000, …). From here on a size means "unknown".
 */
const STREAMING_SIZE = 0x7000_0000;

/** A size as its writer has told it; undefined where that could not be known then. */
export const writtenSize = (size: number): number | undefined =>
  size === 0 || size >= STREAMING_SIZE ? undefined : size;

/**
 * Walks the chunks of a RIFF/WAVE body while it streams by, without keeping its bytes. Where the `data` chunk tells its
 * size, that decides whether the audio is whole; else the size of the RIFF chunk does, if it is known.
 */
export class WaveAudioCheck implements AudioCheck {
  #received = 0;
  #skip = 0;
  #riffSize: number | undefined;
  #dataSize: number | undefined;
  #dataReceived = 0;
  #isInData = false;
  #isDataWhole = false;
  readonly #header = new DataView(new ArrayBuffer(RIFF_HEADER_BYTES));
  #headerLength = 0;
  #headerNeeded = RIFF_HEADER_BYTES;

  push(chunk: Uint8Array): void {
    this.#received += chunk.length;
    let position = 0;
    while (!this.#isDataWhole && position < chunk.length) {
      if (this.#isInData) {
        this.#dataReceived += chunk.length - position;
        this.#isDataWhole = this.#dataSize !== undefined && this.#dataReceived >= this.#dataSize;
        return;
      }
      if (this.#skip > 0) {
        const step = Math.min(this.#skip, chunk.length - position);
        this.#skip -= step;
        position += step;
        continue;
      }
      this.#header.setUint8(this.#headerLength++, chunk[position++] as number);
      if (this.#headerLength === this.#headerNeeded) this.#enter();
    }
  }

  #enter(): void {
    const size = this.#header.getUint32(4, true);
    if (this.#headerNeeded === RIFF_HEADER_BYTES) {
      this.#riffSize = writtenSize(size);
      this.#headerNeeded = WAVE_CHUNK_HEADER_BYTES;
    } else if (this.#header.getUint32(0) === 0x64617461) {
      this.#dataSize = writtenSize(size);
      this.#isInData = true;
    } else {
      this.#skip = size + (size % 2);
    }
    this.#headerLength = 0;
  }

  end(): AudioFault | undefined {
    if (this.#isDataWhole) return undefined;
    if (this.#isInData && this.#dataSize !== undefined) return 'truncated';
    if (this.#isRiffCut()) return 'truncated';
    return this.#dataReceived === 0 ? 'no audio' : undefined;
  }

  /** Writers often forget to add the last chunk's padding byte, or count it without writing it: one byte may be missing. */
  #isRiffCut(): boolean {
    return this.#riffSize !== undefined && this.#riffSize > this.#received - RIFF_SIZE_EXCLUDES + 1;
  }
}
