import libflac from 'libflacjs/dist/libflac.js';
import { SAMPLE_RATE, toIntegers } from './samples.ts';

const BITS = 16;
const COMPRESSION_LEVEL = 5;
/** Within the STREAMINFO block's header and body, as the library writes them in one piece after the four bytes fLaC. */
const FRAME_SIZES_AT = 8;
const TOTAL_SAMPLES_AT = 18;
const DIGEST_AT = 22;

/** A FLAC file in one piece, since its header tells its length and digest. */
export async function* encodeFlac(samples: AsyncIterable<Float32Array>): AsyncGenerator<Uint8Array> {
  await ready();
  const parts: Buffer[] = [];
  const encoder = libflac.create_libflac_encoder(SAMPLE_RATE, 1, BITS, COMPRESSION_LEVEL);
  try {
    let info: libflac.StreamMetadata | undefined;
    const state = libflac.init_encoder_stream(
      encoder,
      (bytes) => {
        parts.push(Buffer.from(bytes));
      },
      (told) => {
        info = told;
      },
    );
    if (state !== 0) throw new Error(`libFLAC can't start: ${state}`);
    for await (const piece of samples) {
      const integers = Int32Array.from(toIntegers(piece));
      if (!libflac.FLAC__stream_encoder_process_interleaved(encoder, integers, integers.length)) {
        throw new Error(`libFLAC stopped: ${libflac.FLAC__stream_encoder_get_state(encoder)}`);
      }
    }
    libflac.FLAC__stream_encoder_finish(encoder);
    const header = parts[1];
    if (header && info) complete(header, info);
    yield Buffer.concat(parts);
  } finally {
    libflac.FLAC__stream_encoder_delete(encoder);
  }
}

async function ready(): Promise<void> {
  if (libflac.isReady()) return;
  await new Promise<void>((resolve) => libflac.on('ready', () => resolve()));
}

/** Writes what was not known when the encoder began. */
function complete(header: Buffer, info: libflac.StreamMetadata): void {
  header.writeUIntBE(info.min_framesize, FRAME_SIZES_AT, 3);
  header.writeUIntBE(info.max_framesize, FRAME_SIZES_AT + 3, 3);
  header.writeUInt32BE(info.total_samples, TOTAL_SAMPLES_AT);
  header.write(info.md5sum, DIGEST_AT, 'hex');
}
