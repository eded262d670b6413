import { SAMPLE_RATE, toPcm } from './samples.ts';

const HEADER_BYTES = 44;

/** Bare samples: 16-bit signed little-endian integers. */
export async function* encodePcm(samples: AsyncIterable<Float32Array>): AsyncGenerator<Uint8Array> {
  for await (const piece of samples) yield toPcm(piece);
}

/** A WAV file in one piece, since its header tells its length. */
export async function* encodeWave(samples: AsyncIterable<Float32Array>): AsyncGenerator<Uint8Array> {
  const parts: Buffer[] = [];
  for await (const piece of samples) parts.push(toPcm(piece));
  const length = parts.reduce((sum, part) => sum + part.length, 0);
  const header = Buffer.alloc(HEADER_BYTES);
  header.write('RIFF', 0, 'latin1');
  header.writeUInt32LE(HEADER_BYTES - 8 + length, 4);
  header.write('WAVEfmt ', 8, 'latin1');
  header.writeUInt32LE(16, 16);
  header.writeUInt16LE(1, 20);
  header.writeUInt16LE(1, 22);
  header.writeUInt32LE(SAMPLE_RATE, 24);
  header.writeUInt32LE(SAMPLE_RATE * 2, 28);
  header.writeUInt16LE(2, 32);
  header.writeUInt16LE(16, 34);
  header.write('data', 36, 'latin1');
  header.writeUInt32LE(length, 40);
  yield Buffer.concat([header, ...parts]);
}
