import assert from 'node:assert/strict';
import { test } from 'tap';
import { FLITE_SAMPLE_RATE, Flite, loadEngine, recipeOf, VOICES } from '../../../src/sandbox/voice/flite.ts';
import { medianPitch } from './sound.ts';

const SENTENCE = 'The quick brown fox jumps over the lazy dog, and then it runs away.';

const engine = await loadEngine();
const flite = new Flite(engine);

for (const voice of VOICES) {
  const recipe = recipeOf(voice);

  test(`${voice}: stretching changes the duration and keeps the pitch`, async () => {
    const plain = flite.speak(SENTENCE, recipe, 1);
    const plainPitch = pitchOf(plain);
    for (const stretch of [0.45, 2.2]) {
      const stretched = flite.speak(SENTENCE, recipe, stretch);
      const ratio = stretched.length / plain.length / stretch;
      assert.ok(ratio > 0.97 && ratio < 1.03, `${stretch}: off by ${ratio}`);
      const pitch = pitchOf(stretched) / plainPitch;
      // What is left is the speaker's livelier or flatter intonation.
      assert.ok(pitch > 0.92 && pitch < 1.08, `${stretch}: pitch times ${pitch}`);
    }
  });
}

test('a run leaves no state: a text always sounds the same', async () => {
  const recipe = recipeOf('alloy');
  const first = new Flite(engine).speak(SENTENCE, recipe, 1);
  flite.speak('7 '.repeat(60), recipeOf('onyx'), 2);
  flite.speak('', recipeOf('ash'), 1);
  assert.deepEqual(flite.speak(SENTENCE, recipe, 1), first);
  assert.deepEqual(flite.speak(SENTENCE, recipe, 1), first);
});

test('a run that grows the memory does not affect the next', async () => {
  const recipe = recipeOf('onyx');
  const reference = flite.speak(SENTENCE, recipe, 1);
  const long = flite.speak('seven hundred and seventy seven thousand '.repeat(40), recipe, 2);
  assert.ok(long.byteLength > 4 * 1024 * 1024, `only ${long.byteLength} bytes`);
  assert.deepEqual(flite.speak(SENTENCE, recipe, 1), reference);
});

test('text that looks like options is spoken, not obeyed', async () => {
  for (const text of ['-voice kal', '--help', '-lv', '-o /tmp/other.wav', '-ssml <speak>hello</speak>']) {
    assert.ok(flite.speak(text, recipeOf('alloy'), 1).length > 0.4 * FLITE_SAMPLE_RATE, text);
  }
});

test('an unknown voice always gets the recipe of the same known one', async () => {
  const recipes = VOICES.map(recipeOf);
  for (const voice of ['verse', '', 'constructor', '__proto__', '声']) {
    assert.ok(recipes.includes(recipeOf(voice)), voice);
    assert.equal(recipeOf(voice), recipeOf(voice));
  }
});

function pitchOf(samples: Int16Array): number {
  return medianPitch(
    Float32Array.from(samples, (sample) => sample / 32_768),
    FLITE_SAMPLE_RATE,
  );
}
