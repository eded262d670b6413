import assert from 'node:assert/strict';
import { test } from 'tap';
import { type AudioFormat, FORMATS, inFormat } from '../../src/bridge/audio/formats.ts';
import { probe, withoutProbe } from '../support/probed-audio.ts';
import { silentMp3, silentWav } from '../support/silent-audio.ts';
import { type Mp3Rate, pitch, share, toneMp3 } from '../support/tone.ts';

const CODECS: Record<Exclude<AudioFormat, 'pcm'>, string> = {
  mp3: 'mp3',
  wav: 'pcm_s16le',
  flac: 'flac',
  opus: 'opus',
  aac: 'aac',
};
const FORMAT_NAMES = Object.keys(CODECS) as (keyof typeof CODECS)[];
/** Seconds that a format may add: its frames are filled up, and MP3 and AAC have a run-up. */
const MORE = { mp3: 0.12, wav: 0.12, flac: 0.12, opus: 0.12, aac: 0.2 };

async function* pieces(bytes: Uint8Array, size = 5_000): AsyncGenerator<Uint8Array> {
  for (let start = 0; start < bytes.length; start += size) yield bytes.subarray(start, start + size);
}

async function inWhole(
  format: AudioFormat,
  bytes: Uint8Array,
  contentType: 'audio/mpeg' | 'audio/wav' = 'audio/mpeg',
): Promise<Buffer> {
  const parts: Uint8Array[] = [];
  for await (const part of inFormat(format, { audio: pieces(bytes), contentType }, 0)) parts.push(part);
  return Buffer.concat(parts);
}

for (const rate of [16_000, 44_100] as const) {
  test(`MP3 of ${rate} samples a second in each format`, { skip: withoutProbe }, async () => {
    const mp3 = await toneMp3(1_000, rate, 2);
    for (const format of FORMAT_NAMES) {
      const probed = await probe(await inWhole(format, mp3), format);
      assert.deepEqual([probed.codec, probed.channels], [CODECS[format], 1], format);
      assert.ok(probed.seconds >= 2 && probed.seconds < 2 + MORE[format], `${format}: ${probed.seconds} s`);
      const spoken = probed.samples.slice(12_000, 36_000);
      assert.ok(share(1_000, 24_000, spoken) > 0.99, `${format}: ${share(1_000, 24_000, spoken)}`);
    }
  });
}

const pcmSamples = (pcm: Buffer): Float32Array =>
  Float32Array.from({ length: pcm.length / 2 }, (_, at) => pcm.readInt16LE(at * 2) / 32_768);

/** The pitch of each second, without its first and last quarter, in which the encoder begins and ends. */
const pitches = (samples: Float32Array, seconds: number): number[] =>
  Array.from({ length: seconds }, (_, second) =>
    Math.round(pitch(24_000, samples.slice(second * 24_600 + 8_500, second * 24_600 + 18_000))),
  );

/** Each part is a second of MP3 with this rate and number of channels. */
const CHANGES: readonly (readonly (readonly [rate: Mp3Rate, channels: 1 | 2])[])[] = [
  [
    [44_100, 1],
    [24_000, 1],
  ],
  [
    [24_000, 1],
    [44_100, 1],
  ],
  [
    [48_000, 2],
    [8_000, 1],
    [22_050, 2],
    [24_000, 2],
  ],
  [
    [44_100, 1],
    [44_100, 2],
    [44_100, 1],
  ],
];

for (const parts of CHANGES) {
  test(`MP3 keeps its pitch from ${parts.map((part) => part.join(' Hz x')).join(' to ')}`, async (t) => {
    const mp3s = await Promise.all(parts.map(([rate, channels]) => toneMp3(440, rate, 1, channels)));
    for (const size of [1, 413, 5_000, 1_000_000]) {
      const heard: Buffer[] = [];
      const encoded = { audio: pieces(Buffer.concat(mp3s), size), contentType: 'audio/mpeg' as const };
      for await (const part of inFormat('pcm', encoded, 0)) heard.push(Buffer.from(part));
      const samples = pcmSamples(Buffer.concat(heard));
      for (const each of pitches(samples, parts.length)) assert.ok(Math.abs(each - 440) <= 1, `${size}: ${each} Hz`);
      const loudest = Math.max(...samples.map(Math.abs));
      assert.ok(loudest > 0.4 && loudest < 0.6, `${size}: ${loudest}`);
    }
    await t.test('in each format', { skip: withoutProbe }, async () => {
      for (const format of ['wav', 'flac', 'opus', 'aac'] as const) {
        const { samples } = await probe(await inWhole(format, Buffer.concat(mp3s)), format);
        for (const each of pitches(samples, parts.length))
          assert.ok(Math.abs(each - 440) <= 1, `${format}: ${each} Hz`);
      }
    });
  });
}

test('PCM is what OpenAI documents: 24,000 samples a second, 16 bits, one channel, little-endian', async () => {
  const pcm = await inWhole('pcm', await toneMp3(1_000, 44_100, 1));
  const samples = pcmSamples(pcm);
  assert.ok(Math.abs(samples.length - 24_000) < 2_500);
  const spoken = samples.slice(6_000, 18_000);
  assert.ok(share(1_000, 24_000, spoken) > 0.99, String(share(1_000, 24_000, spoken)));
  assert.ok(Math.abs(Math.max(...spoken) - 0.475) < 0.02);
});

test('MP3 that came as MP3 is passed on as it is', async () => {
  const mp3 = await toneMp3(1_000, 16_000, 1);
  assert.deepEqual(await inWhole('mp3', mp3), Buffer.from(mp3));
});

test('WAV becomes each format too', { skip: withoutProbe }, async () => {
  const wav = silentWav(1_000);
  for (const format of FORMAT_NAMES) {
    const probed = await probe(await inWhole(format, wav, 'audio/wav'), format);
    assert.equal(probed.codec, CODECS[format]);
    assert.ok(probed.seconds >= 1 && probed.seconds < 1 + MORE[format], `${format}: ${probed.seconds} s`);
  }
});

test('a WAV whose size was not known as it was written is heard to its end', async () => {
  const wav = silentWav(1_000);
  const at = wav.indexOf('data') + 4;
  const whole = await inWhole('pcm', wav, 'audio/wav');
  assert.ok(whole.length > 0);
  for (const size of [0, 0xffff_ffff]) {
    const streamed = Buffer.from(wav);
    streamed.writeUInt32LE(size, at);
    assert.deepEqual(await inWhole('pcm', streamed, 'audio/wav'), whole, String(size));
  }
});

test('every frame of an MP3 is heard, and the header of a WAV or FLAC file tells how many', {
  skip: withoutProbe,
}, async () => {
  const mp3 = silentMp3(2_400);
  const wav = await inWhole('wav', mp3);
  assert.equal(wav.readUInt32LE(40), wav.length - 44);
  const flac = await inWhole('flac', mp3);
  assert.equal(flac.readUInt32BE(8 + 14), (wav.length - 44) / 2);
  assert.notEqual(flac.toString('hex', 26, 42), '0'.repeat(32));
  assert.equal((await probe(wav, 'wav')).samples.length, (wav.length - 44) / 2);
});

test('what is no MP3 is told, and not passed on as silence', async () => {
  await assert.rejects(inWhole('wav', silentWav(1_000), 'audio/mpeg'), /MP3/);
});

test('many streams are encoded at a time, each as if it were alone', { timeout: 60_000 }, async () => {
  const mp3s = await Promise.all([300, 800, 1_200, 3_000].map((hertz) => toneMp3(hertz, 24_000, 1)));
  for (const format of ['opus', 'flac'] as const) {
    const alone: Buffer[] = [];
    for (const mp3 of mp3s) alone.push(await inWhole(format, mp3));
    const together = await Promise.all(mp3s.map((mp3) => inWhole(format, mp3)));
    together.forEach((bytes, at) => {
      assert.equal(bytes.length, alone[at]?.length, format);
    });
    if (format === 'flac') assert.deepEqual(together, alone);
  }
});

test('every format has a type of content', async () => {
  for (const { contentType } of Object.values(FORMATS)) assert.match(contentType, /^audio\//);
});
