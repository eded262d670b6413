import assert from 'node:assert/strict';
import { test } from 'tap';
import { openWave } from '../../src/bridge/audio/wave-samples.ts';
import { pitch, share, toneWave, type WaveKind } from '../support/tone.ts';

const READ: readonly WaveKind[] = [
  { encoding: 'int', bits: 8 },
  { encoding: 'int', bits: 16 },
  { encoding: 'int', bits: 24 },
  { encoding: 'int', bits: 32 },
  { encoding: 'float', bits: 32 },
  { encoding: 'float', bits: 64 },
  { encoding: 'int', bits: 8, isExtensible: true },
  { encoding: 'int', bits: 16, isExtensible: true },
  { encoding: 'int', bits: 24, isExtensible: true },
  { encoding: 'int', bits: 32, isExtensible: true },
  { encoding: 'float', bits: 32, isExtensible: true },
  { encoding: 'float', bits: 64, isExtensible: true },
  // Fewer bits than their bytes could hold.
  { encoding: 'int', bits: 12, bytes: 2 },
  { encoding: 'int', bits: 20, bytes: 3, isExtensible: true },
  { encoding: 'int', bits: 24, bytes: 4, isExtensible: true },
];

for (const kind of READ) {
  const { encoding, bits, bytes = bits / 8, isExtensible = false } = kind;
  const name = `${encoding} of ${bits} bits in ${bytes} bytes${isExtensible ? ', extensible' : ''}`;
  test(`WAV: ${name}`, async () => {
    for (const channels of [1, 2, 6]) {
      const { rate, length, read } = openWave(toneWave(440, 0.5, { ...kind, channels, rate: 48_000 }));
      const heard = read(0, length);
      assert.deepEqual([rate, heard.length], [48_000, channels]);
      for (const samples of heard) {
        assert.equal(samples.length, 24_000);
        assert.ok(Math.abs(pitch(48_000, samples) - 440) < 0.5);
        assert.ok(share(440, 48_000, samples) > 0.999);
        assert.ok(Math.abs(Math.max(...samples) - 0.5) < 0.01, String(Math.max(...samples)));
      }
    }
  });
}

test('a kind of WAV that is not read is named', async () => {
  for (const [kind, message] of [
    [{ encoding: 'adpcm', bits: 4 }, /format 2 with 4 bits/],
    [{ encoding: 'adpcm', bits: 4, isExtensible: true }, /format 2 with/],
    [{ encoding: 'mulaw', bits: 8 }, /format 7 with 8 bits/],
    [{ encoding: 'float', bits: 16, bytes: 4 }, /format 3 with 16 bits/],
    [{ encoding: 'int', bits: 64, bytes: 6 }, /format 1 with 64 bits/],
    [{ encoding: 'int', bits: 16, channels: 0 }, /0 channels/],
    [{ encoding: 'int', bits: 8, channels: 9 }, /9 channels/],
    [{ encoding: 'int', bits: 16, rate: 0 }, /0 samples a second/],
    [{ encoding: 'int', bits: 16, rate: 7_999 }, /7999 samples a second/],
    [{ encoding: 'int', bits: 16, rate: 192_001 }, /192001 samples a second/],
  ] as const) {
    assert.throws(() => openWave(toneWave(440, 0.1, kind)), message);
  }
});
