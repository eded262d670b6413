import { randomInt } from 'node:crypto';
import load from 'opusscript/build/opusscript_native_wasm.js';
import { FIRST_PAGE, LAST_PAGE, OggPages } from './ogg.ts';
import { SAMPLE_RATE, toPcm } from './samples.ts';

const FRAME_SAMPLES = SAMPLE_RATE / 50;
const FRAME_BYTES = FRAME_SAMPLES * 2;
const MAX_PACKET_BYTES = 1_275;
const FRAMES_PER_PAGE = 25;
const APPLICATION_AUDIO = 2049;
const SET_BITRATE = 4002;
const BITS_PER_SECOND = 32_000;
/** Ogg counts 48,000 samples a second, whatever the rate of the input. */
const GRANULES_PER_SAMPLE = 48_000 / SAMPLE_RATE;
/** libopus delays what it encodes by 6.5 ms. */
const PRE_SKIP = 312;

const native = load();

/** Ogg Opus. @see RFC 7845 */
export async function* encodeOpus(samples: AsyncIterable<Float32Array>): AsyncGenerator<Uint8Array> {
  const pages = new OggPages(randomInt(2 ** 32));
  yield pages.page([identification()], 0, FIRST_PAGE);
  yield pages.page([comment()], 0);
  const encoder = new OpusEncoder();
  try {
    let pending = Buffer.alloc(0);
    let packets: Uint8Array[] = [];
    let frames = 0;
    let spoken = 0;
    for await (const piece of samples) {
      pending = Buffer.concat([pending, toPcm(piece)]);
      spoken += piece.length;
      for (; pending.length >= FRAME_BYTES; pending = pending.subarray(FRAME_BYTES)) {
        if (packets.length === FRAMES_PER_PAGE) {
          yield pages.page(packets, frames * FRAME_SAMPLES * GRANULES_PER_SAMPLE);
          packets = [];
        }
        packets.push(encoder.encode(pending.subarray(0, FRAME_BYTES)));
        frames++;
      }
    }
    const end = PRE_SKIP + spoken * GRANULES_PER_SAMPLE;
    for (; frames * FRAME_SAMPLES * GRANULES_PER_SAMPLE < end; pending = Buffer.alloc(0)) {
      packets.push(encoder.encode(Buffer.concat([pending, Buffer.alloc(FRAME_BYTES)], FRAME_BYTES)));
      frames++;
    }
    yield pages.page(packets, end, LAST_PAGE);
  } finally {
    encoder.free();
  }
}

/** One stream: each frame is encoded after those before it. */
class OpusEncoder {
  readonly #handler = new native.OpusScriptHandler(SAMPLE_RATE, 1, APPLICATION_AUDIO);
  readonly #input = native._malloc(FRAME_BYTES * 2);
  readonly #output = native._malloc(MAX_PACKET_BYTES);

  constructor() {
    this.#handler._encoder_ctl(SET_BITRATE, BITS_PER_SECOND);
  }

  encode(frame: Uint8Array): Uint8Array {
    native.HEAPU16.set(frame, this.#input / 2);
    const length = this.#handler._encode(this.#input, frame.length, this.#output, FRAME_SAMPLES);
    if (length < 0) throw new Error(`libopus refused a frame: ${length}`);
    return native.HEAPU8.slice(this.#output, this.#output + length);
  }

  free(): void {
    native.OpusScriptHandler.destroy_handler(this.#handler);
    native._free(this.#input);
    native._free(this.#output);
  }
}

function identification(): Uint8Array {
  const head = Buffer.alloc(19);
  head.write('OpusHead', 0, 'latin1');
  head.writeUInt8(1, 8);
  head.writeUInt8(1, 9);
  head.writeUInt16LE(PRE_SKIP, 10);
  head.writeUInt32LE(SAMPLE_RATE, 12);
  return head;
}

function comment(): Uint8Array {
  const vendor = Buffer.from('speechgate');
  const tags = Buffer.alloc(8 + 4 + vendor.length + 4);
  tags.write('OpusTags', 0, 'latin1');
  tags.writeUInt32LE(vendor.length, 8);
  tags.set(vendor, 12);
  return tags;
}
