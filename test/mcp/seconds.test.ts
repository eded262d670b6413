import assert from 'node:assert/strict';
import { test } from 'tap';
import { secondsOf } from '../../src/mcp/seconds.ts';
import { silentMp3, silentWav } from '../support/silent-audio.ts';

const near = (seconds: number | null, expected: number) =>
  assert.ok(seconds !== null && Math.abs(seconds - expected) < 0.06, `${seconds} instead of ${expected}`);

test('the length of MP3 is that of its frames, with or without a tag, at each sampling rate', async () => {
  near(secondsOf(silentMp3(2500), 'audio/mpeg'), 2.5);
  const tag = Buffer.concat([Buffer.from('ID3\x04\0\0\0\0\0\x05', 'latin1'), Buffer.alloc(5)]);
  near(secondsOf(Buffer.concat([tag, silentMp3(1000)]), 'audio/mpeg'), 1);
  // Bytes of the header's second and third: MPEG 1 at 44.1 kHz, MPEG 2 at 22.05 kHz, MPEG 2.5 at 11.025 kHz.
  for (const [version, samples, rate] of [
    [0xfb, 1152, 44_100],
    [0xf3, 576, 22_050],
    [0xe3, 576, 11_025],
  ] as const) {
    const isMpeg1 = version === 0xfb;
    const length = Math.floor(((isMpeg1 ? 144_000 : 72_000) * (isMpeg1 ? 128 : 64)) / rate);
    const frame = Buffer.alloc(length);
    frame.set([0xff, version, isMpeg1 ? 0x90 : 0x80, 0]);
    near(secondsOf(Buffer.concat(Array.from({ length: 40 }, () => frame)), 'audio/mpeg'), (40 * samples) / rate);
  }
});

test('the length of WAV is that of its data, also when its size was not known as it was written', async () => {
  const wav = silentWav(1500);
  near(secondsOf(wav, 'audio/wav'), 1.5);
  const at = Buffer.from(wav).indexOf('data') + 4;
  for (const size of [0, 0xffff_ffff]) {
    const streamed = Buffer.from(wav);
    streamed.writeUInt32LE(size, at);
    near(secondsOf(streamed, 'audio/wav'), 1.5);
  }
});

test('what is no audio has no length', async () => {
  for (const type of ['audio/mpeg', 'audio/wav'] as const) {
    assert.equal(secondsOf(new Uint8Array(0), type), null);
    assert.equal(secondsOf(Buffer.alloc(2000, 0x5a), type), null);
  }
});
