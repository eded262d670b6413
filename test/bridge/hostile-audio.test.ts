/** Audio whose numbers are lies: a bridge that reads it tells of it, and neither ends, hangs nor fills its memory. */
import assert from 'node:assert/strict';
import fc from 'fast-check';
import { test } from 'tap';
import { type AudioFormat, FORMATS, inFormat, mostSeconds } from '../../src/bridge/audio/formats.ts';
import { UnreadableAudioError } from '../../src/bridge/audio/unreadable-audio.ts';
import { secondsOf } from '../../src/mcp/seconds.ts';
import { audioReader } from '../../src/speech/audio-format.ts';
import { toneMp3, toneWave } from '../support/tone.ts';

type AudioType = 'audio/mpeg' | 'audio/wav';

const CHARACTERS = 5;

async function* pieces(bytes: Uint8Array, size = 1_000): AsyncGenerator<Uint8Array> {
  for (let start = 0; start < bytes.length; start += size) yield bytes.subarray(start, start + size);
}

/** The bytes that it is converted to; undefined where it can't be read. */
async function converted(format: AudioFormat, bytes: Uint8Array, contentType: AudioType): Promise<number | undefined> {
  let length = 0;
  try {
    for await (const part of inFormat(format, { audio: pieces(bytes), contentType }, CHARACTERS)) length += part.length;
    return length;
  } catch (error) {
    if (error instanceof UnreadableAudioError) return undefined;
    throw error;
  }
}

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
  { rate: 0 },
  { rate: 1 },
  { rate: 7_999 },
  { rate: 192_001 },
  { rate: 2 ** 32 - 1 },
  { channels: 0 },
  { channels: 9 },
  { channels: 65_535 },
  { bits: 65_535 },
] as const;

test('a WAV of 76 bytes whose numbers are lies is refused in each format', async () => {
  assert.equal(smallWave({}).length, 76);
  for (const format of Object.keys(FORMATS) as AudioFormat[]) {
    for (const lie of LIES) {
      assert.equal(await converted(format, smallWave(lie), 'audio/wav'), undefined, `${format} ${JSON.stringify(lie)}`);
    }
  }
});

test('a WAV with such numbers is not sold, and its length is not told', async () => {
  for (const lie of LIES.filter((each) => !('bits' in each))) {
    const reader = audioReader('audio/wav', { pass: () => {}, bodyBytes: undefined });
    assert.equal(reader.push(smallWave(lie)), 'damaged', JSON.stringify(lie));
    assert.equal(secondsOf(smallWave(lie), 'audio/wav'), null);
  }
});

test('rates that have nothing in common with 24,000 are resampled', async () => {
  for (const rate of [8_000, 8_009, 95_987, 191_999, 192_000]) {
    const bytes = await converted('pcm', toneWave(440, 0.2, { encoding: 'int', bits: 16, rate }), 'audio/wav');
    assert.ok(bytes && Math.abs(bytes - 9_600) <= 4, `${rate}: ${bytes}`);
  }
});

test('audio that plays longer than its text can be is not converted', async () => {
  const wave = toneWave(440, mostSeconds(CHARACTERS) + 1, { encoding: 'int', bits: 8, rate: 8_000 });
  assert.equal(await converted('wav', wave, 'audio/wav'), undefined);
});

test('an MP3 whose rate changes with every frame is converted', async () => {
  const [low, high] = await Promise.all([toneMp3(440, 22_050, 1), toneMp3(440, 44_100, 1)]);
  const frame = (mp3: Uint8Array, length: number) => mp3.subarray(0, length);
  const mp3 = Buffer.concat(Array.from({ length: 200 }, () => [frame(low, 209), frame(high, 417)]).flat());
  assert.ok(await converted('pcm', mp3, 'audio/mpeg'));
});

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

for (const [name, type, bytes] of mutants) {
  test(`damaged ${name} ends as audio of a bounded length, or as unreadable`, async () => {
    const format = fc.constantFrom<AudioFormat>('pcm', 'wav', 'opus');
    await fc.assert(
      fc.asyncProperty(bytes, format, async (audio, format) => {
        const length = (await converted(format, audio, type)) ?? 0;
        assert.ok(length <= Math.max(audio.length, 1_000_000), `${length} bytes`);
        secondsOf(audio, type);
      }),
      { numRuns: 200 },
    );
  });
}
