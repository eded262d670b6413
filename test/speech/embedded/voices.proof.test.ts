import assert from 'node:assert/strict';
import { type Test, test } from 'tap';
import { VOICES } from '../../../src/speech/embedded/recipes.ts';
import { missingProgram } from '../../support/missing-program.ts';
import { readMp3 } from './mp3-frames.ts';
import { DECODED_SAMPLE_RATE, decode, medianPitch, rootMeanSquare } from './sound.ts';
import { speak, startVoice } from './speak.ts';

const SENTENCE = 'The quick brown fox jumps over the lazy dog, and then it runs away.';

const needsFfmpeg = { skip: missingProgram('ffmpeg') ?? false };

test('the voices are the nine of the catalog', async () => {
  assert.deepEqual(VOICES, ['alloy', 'ash', 'coral', 'echo', 'fable', 'nova', 'onyx', 'sage', 'shimmer']);
});

for (const { text, tolerance } of [
  { text: SENTENCE, tolerance: 0.03 },
  // MP3 frames last 36 ms, of half a second.
  { text: 'Hello world', tolerance: 0.05 },
]) {
  test(`at any speed the audio lasts 1/speed of its duration at speed 1, with every voice: ${text}`, async (t) => {
    const voice = startVoice(t, 2);
    const seconds = async (name: string, speed: number) =>
      readMp3(await speak(voice, { text, voice: name, speed })).seconds;
    for (const name of VOICES) {
      const [plain, ...others] = await Promise.all([1, 0.5, 2].map((speed) => seconds(name, speed)));
      for (const [i, speed] of [0.5, 2].entries()) {
        const ratio = ((others[i] as number) * speed) / (plain as number);
        assert.ok(Math.abs(ratio - 1) < tolerance, `${name} at speed ${speed}: off by ${ratio}`);
      }
    }
  });
}

test('every two voices differ in pitch by 4 percent or more', needsFfmpeg, async (t) => {
  const pitches = [...(await decodedVoices(t))].map(([name, samples]) => ({
    name,
    pitch: medianPitch(samples, DECODED_SAMPLE_RATE),
  }));
  pitches.sort((a, b) => a.pitch - b.pitch);
  for (const [i, { name, pitch }] of pitches.entries()) {
    const next = pitches[i + 1];
    if (next) assert.ok(next.pitch / pitch >= 1.04, `${name} ${pitch} Hz, ${next.name} ${next.pitch} Hz`);
  }
});

test('all voices are audible, about equally loud, and do not clip', needsFfmpeg, async (t) => {
  const voices = await decodedVoices(t);
  for (const [name, samples] of voices) {
    const decibels = 20 * Math.log10(rootMeanSquare(samples));
    assert.ok(decibels > -22.5 && decibels < -16.5, `${name}: ${decibels} dB`);
    assert.ok(Math.max(...samples.map(Math.abs)) < 1, `${name} clips`);
  }
});

async function decodedVoices(t: Test): Promise<Map<string, Float32Array>> {
  const voice = startVoice(t, 2);
  return new Map(
    await Promise.all(
      VOICES.map(async (name) => [name, decode(await speak(voice, { text: SENTENCE, voice: name }))] as const),
    ),
  );
}
