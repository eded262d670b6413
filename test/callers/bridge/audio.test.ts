import assert from 'node:assert/strict';
import fc from 'fast-check';
import { test } from 'tap';
import { openWave, UnreadableAudioError } from '../../../src/callers/bridge/audio/decode.ts';
import { type AudioFormat, convertTo, FORMATS, maxSeconds } from '../../../src/callers/bridge/audio/formats.ts';
import { Resampler } from '../../../src/callers/bridge/audio/resampler.ts';
import { secondsOf } from '../../../src/callers/mcp/speak-tool.ts';
import { audioReader } from '../../../src/speech/audio-format.ts';
import { probe, withoutProbe } from '../../support/probed-audio.ts';
import { silentMp3, silentWav } from '../../support/silent-audio.ts';
import { type Mp3Rate, pitch, share, tone, toneMp3, toneWave, type WaveKind } from '../../support/tone.ts';

type AudioType = 'audio/mpeg' | 'audio/wav';

const CHARACTERS = 5;

/** Bytes of which some are others, most of them in the header. */
const mutated = (original: Uint8Array) =>
  fc
    .record({
      places: fc.array(
        fc.tuple(
          fc.oneof(fc.nat(60), fc.nat(original.length - 1)),
          fc.oneof(fc.constantFrom(0, 1, 0x7f, 0xff), fc.nat(255)),
        ),
        { minLength: 1, maxLength: 12 },
      ),
      length: fc.oneof(fc.constant(original.length), fc.nat(original.length)),
    })
    .map(({ places, length }) => {
      const bytes = Buffer.from(original);
      for (const [at, value] of places) bytes[at] = value;
      return bytes.subarray(0, length);
    });

const mutants: readonly (readonly [name: string, type: AudioType, bytes: fc.Arbitrary<Uint8Array>])[] = [
  ['WAV of integers', 'audio/wav', mutated(toneWave(440, 0.05, { encoding: 'int', bits: 16, channels: 2 }))],
  ['WAV of floats', 'audio/wav', mutated(toneWave(440, 0.05, { encoding: 'float', bits: 32, isExtensible: true }))],
  ['MP3', 'audio/mpeg', mutated(await toneMp3(440, 44_100, 0.3, 2))],
  ['noise', 'audio/mpeg', fc.uint8Array({ minLength: 1, maxLength: 5_000 })],
  ['noise as WAV', 'audio/wav', fc.uint8Array({ minLength: 1, maxLength: 500 })],
];

const CODECS: Record<Exclude<AudioFormat, 'pcm'>, string> = {
  mp3: 'mp3',
  wav: 'pcm_s16le',
  flac: 'flac',
  opus: 'opus',
  aac: 'aac',
};
const FORMAT_NAMES = Object.keys(CODECS) as (keyof typeof CODECS)[];

async function* pieces(bytes: Uint8Array, size: number): AsyncGenerator<Uint8Array> {
  for (let start = 0; start < bytes.length; start += size) yield bytes.subarray(start, start + size);
}

async function inWhole(
  format: AudioFormat,
  bytes: Uint8Array,
  contentType: AudioType = 'audio/mpeg',
  pieceBytes = 5_000,
) {
  const parts: Buffer[] = [];
  const encoded = { audio: pieces(bytes, pieceBytes), contentType };
  for await (const part of convertTo(format, encoded, CHARACTERS, true)) parts.push(Buffer.from(part));
  return Buffer.concat(parts);
}

const pcmSamples = (pcm: Buffer): Float32Array =>
  Float32Array.from({ length: pcm.length / 2 }, (_, at) => pcm.readInt16LE(at * 2) / 32_768);

/** The pitch of each second, without its first and last quarter, in which the encoder begins and ends. */
const pitches = (samples: Float32Array, seconds: number): number[] =>
  Array.from({ length: seconds }, (_, second) =>
    Math.round(pitch(24_000, samples.slice(second * 24_600 + 8_500, second * 24_600 + 18_000))),
  );

/** Parts of a second of MP3 each: the rate and the number of channels. */
const CHANGES = ['44100x1 24000x1', '24000x1 44100x1', '48000x2 8000x1 22050x2 24000x2', '44100x1 44100x2 44100x1'];
const tones = (change: string) =>
  change.split(' ').map((part) => toneMp3(440, Number.parseInt(part, 10) as Mp3Rate, 1, Number(part.at(-1)) as 1 | 2));

test('PCM of an MP3 keeps its pitch, loudness and length while rate and channels change', async (t) => {
  for (const change of CHANGES) {
    const parts = await Promise.all(tones(change));
    for (const size of [1, 5_000, 1_000_000]) {
      const samples = pcmSamples(await inWhole('pcm', Buffer.concat(parts), 'audio/mpeg', size));
      t.ok(Math.abs(samples.length - parts.length * 24_000) < parts.length * 2_500, `${change}: ${samples.length}`);
      for (const each of pitches(samples, parts.length)) t.ok(Math.abs(each - 440) <= 1, `${change}: ${each} Hz`);
      const loudest = Math.max(...samples.map(Math.abs));
      t.ok(loudest > 0.4 && loudest < 0.6, `${change}: ${loudest}`);
    }
  }
});

test('an MP3 that changes, and a WAV, keep their pitch in every format', { skip: withoutProbe }, async (t) => {
  const changing = Buffer.concat(await Promise.all(tones(CHANGES[2] ?? '')));
  const wave = toneWave(440, 4, { encoding: 'int', bits: 16, rate: 44_100 });
  for (const format of FORMAT_NAMES) {
    // An MP3 passes through as MP3.
    const encoded = format === 'mp3' ? inWhole(format, wave, 'audio/wav') : inWhole(format, changing);
    const { codec, channels, seconds, samples } = await probe(await encoded, format);
    t.match(FORMATS[format].contentType, /^audio\//);
    t.strictSame([codec, channels], [CODECS[format], 1], format);
    t.ok(seconds >= 4 && seconds < 4.4, `${format}: ${seconds} s`);
    for (const each of pitches(samples, 4)) t.ok(Math.abs(each - 440) <= 1, `${format}: ${each} Hz`);
  }
});

test('MP3 that is requested as MP3 passes through unchanged', async (t) => {
  const mp3 = await toneMp3(1_000, 16_000, 1);
  t.strictSame(await inWhole('mp3', mp3), Buffer.from(mp3));
});

test('a WAV with an unknown data size is read to its end', async (t) => {
  const wav = silentWav(1_000);
  const whole = await inWhole('pcm', wav, 'audio/wav');
  t.ok(whole.length > 0);
  for (const size of [0, 0xffff_ffff]) {
    const streamed = Buffer.from(wav);
    streamed.writeUInt32LE(size, wav.indexOf('data') + 4);
    t.strictSame(await inWhole('pcm', streamed, 'audio/wav'), whole, String(size));
  }
});

test('every MP3 frame is converted, and WAV and FLAC headers state the length', { skip: withoutProbe }, async (t) => {
  const mp3 = silentMp3(2_400);
  const wav = await inWhole('wav', mp3);
  t.equal(wav.readUInt32LE(40), wav.length - 44);
  const flac = await inWhole('flac', mp3);
  t.equal(flac.readUInt32BE(8 + 14), (wav.length - 44) / 2);
  t.not(flac.toString('hex', 26, 42), '0'.repeat(32));
  t.equal((await probe(wav, 'wav')).samples.length, (wav.length - 44) / 2);
});

test('bytes that are not MP3 are an error, not silence', async (t) => {
  await t.rejects(inWhole('wav', silentWav(1_000), 'audio/mpeg'), /MP3/);
});

test('parallel conversions do not affect each other', async (t) => {
  const mp3s = await Promise.all([300, 1_200].map((hertz) => toneMp3(hertz, 24_000, 1)));
  const alone: Buffer[] = [];
  for (const mp3 of mp3s) alone.push(await inWhole('wav', mp3));
  t.strictSame(await Promise.all(mp3s.map((mp3) => inWhole('wav', mp3))), alone);
});

// Audio whose numbers are lies: a bridge that reads it tells of it, and neither ends, hangs nor fills its memory.

/** The bytes that it is converted to; undefined where it can't be read. */
const converted = (format: AudioFormat, bytes: Uint8Array, contentType: AudioType): Promise<number | undefined> =>
  inWhole(format, bytes, contentType, 1_000).then(
    ({ length }) => length,
    (error) => {
      if (error instanceof UnreadableAudioError) return undefined;
      throw error;
    },
  );

/** Header and 32 bytes of samples: 76 bytes in all. */
function smallWave(fields: { readonly channels?: number; readonly rate?: number; readonly bits?: number }): Buffer {
  const wave = Buffer.concat([toneWave(440, 0, { encoding: 'int', bits: 16 }), Buffer.alloc(32, 0x11)]);
  wave.writeUInt32LE(32, 40);
  if (fields.channels !== undefined) wave.writeUInt16LE(fields.channels, 22);
  if (fields.rate !== undefined) wave.writeUInt32LE(fields.rate, 24);
  if (fields.bits !== undefined) wave.writeUInt16LE(fields.bits, 34);
  return wave;
}

const LIES = [
  ...[0, 1, 7_999, 192_001, 2 ** 32 - 1].map((rate) => ({ rate })),
  ...[0, 9, 65_535].map((channels) => ({ channels })),
  { bits: 65_535 },
];

test('a WAV with impossible header values is refused in every format', async (t) => {
  t.equal(smallWave({}).length, 76);
  for (const format of Object.keys(FORMATS) as AudioFormat[])
    for (const lie of LIES)
      t.equal(await converted(format, smallWave(lie), 'audio/wav'), undefined, `${format} ${JSON.stringify(lie)}`);
});

test('a WAV with impossible header values is not sold and has no length', async (t) => {
  for (const lie of LIES.filter((each) => !('bits' in each))) {
    const reader = audioReader('audio/wav', { pass: () => {}, bodyBytes: undefined });
    t.equal(reader.push(smallWave(lie)), 'damaged', JSON.stringify(lie));
    t.equal(secondsOf(smallWave(lie), 'audio/wav'), null);
  }
});

test('audio too long for its text is not converted', async (t) => {
  const wave = toneWave(440, maxSeconds(CHARACTERS) + 1, { encoding: 'int', bits: 8, rate: 8_000 });
  t.equal(await converted('wav', wave, 'audio/wav'), undefined);
});

for (const [name, type, bytes] of mutants) {
  test(`damaged ${name} converts to bounded audio or is refused as unreadable`, () =>
    fc.assert(
      fc.asyncProperty(bytes, fc.constantFrom<AudioFormat>('pcm', 'wav', 'mp3'), async (audio, format) => {
        const length = (await converted(format, audio, type)) ?? 0;
        assert.ok(length <= Math.max(audio.length, 1_000_000), `${length} bytes`);
        secondsOf(audio, type);
      }),
      { numRuns: 50 },
    ));
}

const RATES = [8_000, 11_025, 44_100, 48_000, 23_373];

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

test('a resampled tone keeps its pitch, loudness, length and place', async (t) => {
  for (const rate of RATES) {
    const heard = resampled(rate, 24_000, tone(1_000, rate, 1));
    t.ok(Math.abs(heard.length - 24_000) <= 1, `${rate}: ${heard.length}`);
    const inside = middle(heard);
    t.ok(share(1_000, 24_000, inside) > 0.999_99, String(rate));
    const loudness = Math.sqrt((2 * inside.reduce((sum, sample) => sum + sample * sample, 0)) / inside.length);
    t.ok(Math.abs(loudness - 0.5) < 0.001, `${rate}: ${loudness}`);
  }
  const click = new Float32Array(16_000);
  click[8_000] = 1;
  const heard = resampled(16_000, 24_000, click);
  t.equal(heard.indexOf(Math.max(...heard)), 12_000);
});

test('resampling removes what the target cannot hold, and adds nothing', async (t) => {
  t.ok(Math.max(...middle(resampled(48_000, 24_000, tone(17_000, 48_000, 1))).map(Math.abs)) < 0.001);
  t.ok(share(6_000, 24_000, middle(resampled(16_000, 24_000, tone(6_000, 16_000, 1)))) > 0.999_9);
});

const READ: readonly WaveKind[] = [
  ...[8, 16, 24, 32].map((bits): WaveKind => ({ encoding: 'int', bits, channels: bits / 8 })),
  ...[32, 64].map((bits): WaveKind => ({ encoding: 'float', bits, isExtensible: true })),
  { encoding: 'int', bits: 16, isExtensible: true, channels: 6 },
  // Fewer bits than their bytes could hold.
  { encoding: 'int', bits: 12, bytes: 2 },
  { encoding: 'int', bits: 20, bytes: 3, isExtensible: true },
  { encoding: 'int', bits: 24, bytes: 4, isExtensible: true },
];

test('a WAV of each supported kind is read', async (t) => {
  for (const kind of READ) {
    const { channels = 1 } = kind;
    const { rate, length, read } = openWave(toneWave(440, 0.5, { ...kind, rate: 48_000 }));
    const heard = read(0, length);
    t.strictSame([rate, heard.length], [48_000, channels], JSON.stringify(kind));
    for (const samples of heard) {
      t.equal(samples.length, 24_000);
      t.ok(share(440, 48_000, samples) > 0.999);
      t.ok(Math.abs(Math.max(...samples) - 0.5) < 0.01, String(Math.max(...samples)));
    }
  }
});

test('an unsupported kind of WAV is refused by name', async () => {
  for (const [kind, message] of [
    [{ encoding: 'adpcm', bits: 4 }, /format code 2 and 4 bits/],
    [{ encoding: 'adpcm', bits: 4, isExtensible: true }, /format code 2 and/],
    [{ encoding: 'mulaw', bits: 8 }, /format code 7 and 8 bits/],
    [{ encoding: 'float', bits: 16, bytes: 4 }, /format code 3 and 16 bits/],
    [{ encoding: 'int', bits: 64, bytes: 6 }, /format code 1 and 64 bits/],
    [{ encoding: 'int', bits: 8, channels: 9 }, /9 channels/],
    [{ encoding: 'int', bits: 16, rate: 7_999 }, /7999 samples a second/],
  ] as const) {
    assert.throws(() => openWave(toneWave(440, 0.1, kind)), message);
  }
  for (const rate of [8_000, 192_000]) openWave(toneWave(440, 0.1, { encoding: 'int', bits: 16, rate }));
});
