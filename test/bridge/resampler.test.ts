import assert from 'node:assert/strict';
import { test } from 'tap';
import { Resampler } from '../../src/bridge/audio/resampler.ts';
import { share, tone } from '../support/tone.ts';

const RATES = [8_000, 11_025, 16_000, 22_050, 32_000, 44_100, 48_000, 23_373];

/** In pieces of uneven lengths. */
function resampled(from: number, to: number, samples: Float32Array): Float32Array {
  const resampler = new Resampler(from, to);
  const parts: Float32Array[] = [];
  for (let start = 0, size = 1; start < samples.length; start += size, size = (size * 7) % 1_999) {
    parts.push(resampler.push(samples.subarray(start, start + size)));
    if (start + size >= samples.length) break;
  }
  parts.push(resampler.end());
  return Float32Array.from(parts.flatMap((part) => [...part]));
}

/** Without the ends, where silence meets the tone. */
const middle = (samples: Float32Array): Float32Array => samples.slice(1_000, -1_000);

for (const rate of RATES) {
  test(`a tone of ${rate} samples a second keeps its pitch, loudness and length at 24,000`, async () => {
    const heard = resampled(rate, 24_000, tone(1_000, rate, 1));
    assert.ok(Math.abs(heard.length - 24_000) <= 1, String(heard.length));
    const inside = middle(heard);
    assert.ok(share(1_000, 24_000, inside) > 0.999_99);
    const loudness = Math.sqrt((2 * inside.reduce((sum, sample) => sum + sample * sample, 0)) / inside.length);
    assert.ok(Math.abs(loudness - 0.5) < 0.001, String(loudness));
  });
}

test('what 24,000 samples a second can not hold is left out, instead of heard as another tone', async () => {
  const heard = middle(resampled(48_000, 24_000, tone(17_000, 48_000, 1)));
  assert.ok(Math.max(...heard.map(Math.abs)) < 0.001);
});

test('what the higher rate could hold beyond the input stays silent', async () => {
  const heard = middle(resampled(16_000, 24_000, tone(6_000, 16_000, 1)));
  assert.ok(share(6_000, 24_000, heard) > 0.999_9);
});

test('the tone is heard when it was played, not later', async () => {
  const click = new Float32Array(16_000);
  click[8_000] = 1;
  const heard = resampled(16_000, 24_000, click);
  assert.equal(heard.indexOf(Math.max(...heard)), 12_000);
});
