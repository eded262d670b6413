import { RIFF_HEADER_BYTES, WAVE_CHUNK_HEADER_BYTES, writtenSize } from './wave-audio.ts';

/** A chunk of a WAV file, by its name of four characters, such as `fmt ` and `data`. */
export interface WaveChunk {
  readonly name: string;
  readonly content: Buffer;
}

/** The chunks of a whole WAV file. The data is all that follows where its writer did not know its size. */
export function* waveChunks(audio: Uint8Array): Generator<WaveChunk> {
  const bytes = Buffer.from(audio.buffer, audio.byteOffset, audio.byteLength);
  for (let at = RIFF_HEADER_BYTES; at + WAVE_CHUNK_HEADER_BYTES <= bytes.length; ) {
    const name = bytes.toString('latin1', at, at + 4);
    const told = bytes.readUInt32LE(at + 4);
    const start = at + WAVE_CHUNK_HEADER_BYTES;
    const size = name === 'data' ? (writtenSize(told) ?? bytes.length - start) : told;
    yield { name, content: bytes.subarray(start, start + size) };
    at = start + size + (size % 2);
  }
}
