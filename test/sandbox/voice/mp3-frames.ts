import assert from 'node:assert/strict';

/** Kilobits per second of MPEG-2 Layer III by header index (ISO/IEC 13818-3, table 2.4.2.3). */
const BITRATES = [0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160];
const SAMPLE_RATE = 16_000;
const SAMPLES_PER_FRAME = 576;

export interface Mp3Stream {
  readonly kilobitsPerSecond: number;
  readonly seconds: number;
}

/** Reads a whole MP3 stream frame by frame; fails unless it is nothing but frames of one bit rate, 16 kHz and mono. */
export function readMp3(bytes: Uint8Array): Mp3Stream {
  const rates = new Set<number>();
  let frames = 0;
  let offset = 0;
  while (offset < bytes.length) {
    const [sync, kind, rate, mode] = bytes.subarray(offset, offset + 4);
    assert.ok(rate !== undefined && mode !== undefined, `cut off at byte ${offset}`);
    assert.equal(sync, 0xff, `no frame at byte ${offset} of ${bytes.length}`);
    assert.equal((kind as number) & 0xfe, 0xf2, 'MPEG-2 Layer III');
    assert.equal((rate >> 2) & 3, 2, '16 kHz');
    assert.equal(mode >> 6, 3, 'mono');
    const kilobits = BITRATES[rate >> 4];
    assert.ok(kilobits, 'a bit rate');
    rates.add(kilobits);
    offset += Math.floor((SAMPLES_PER_FRAME / 8) * ((kilobits * 1000) / SAMPLE_RATE)) + ((rate >> 1) & 1);
    frames++;
  }
  assert.equal(offset, bytes.length, 'the last frame is whole');
  assert.equal(rates.size, 1, `one bit rate, not ${[...rates].join(', ')}`);
  return { kilobitsPerSecond: [...rates][0] as number, seconds: (frames * SAMPLES_PER_FRAME) / SAMPLE_RATE };
}
