import { test } from 'tap';
import { FLITE_SAMPLE_RATE, Flite, loadEngine, recipeOf, VOICES } from '../../../src/sandbox/voice/flite.ts';
import { medianPitch } from './sound.ts';

const SENTENCE = 'The quick brown fox jumps over the lazy dog, and then it runs away.';
const engine = await loadEngine();
const flite = new Flite(engine);

for (const voice of VOICES) {
  const recipe = recipeOf(voice);
  test(`${voice}: stretching changes the duration and keeps the pitch`, async (t) => {
    const plain = flite.speak(SENTENCE, recipe, 1);
    const plainPitch = pitchOf(plain);
    for (const stretch of [0.45, 2.2]) {
      const stretched = flite.speak(SENTENCE, recipe, stretch);
      const ratio = stretched.length / plain.length / stretch;
      t.ok(ratio > 0.97 && ratio < 1.03, `${stretch}: off by ${ratio}`);
      const pitch = pitchOf(stretched) / plainPitch;
      // What is left is the speaker's livelier or flatter intonation.
      t.ok(pitch > 0.92 && pitch < 1.08, `${stretch}: pitch times ${pitch}`);
    }
  });
}

test('a run leaves no state: a text always sounds the same', async (t) => {
  const recipe = recipeOf('alloy');
  const first = new Flite(engine).speak(SENTENCE, recipe, 1);
  flite.speak('7 '.repeat(60), recipeOf('onyx'), 2);
  flite.speak('', recipeOf('ash'), 1);
  t.strictSame(flite.speak(SENTENCE, recipe, 1), first);
  t.strictSame(flite.speak(SENTENCE, recipe, 1), first);
});

test('a run that grows the memory does not affect the next', async (t) => {
  const recipe = recipeOf('onyx');
  const reference = flite.speak(SENTENCE, recipe, 1);
  const long = flite.speak('seven hundred and seventy seven thousand '.repeat(40), recipe, 2);
  t.ok(long.byteLength > 4 * 1024 * 1024, `only ${long.byteLength} bytes`);
  t.strictSame(flite.speak(SENTENCE, recipe, 1), reference);
});

test('text that looks like options is spoken, not obeyed', async (t) => {
  for (const text of ['-voice kal', '--help', '-lv', '-o /tmp/other.wav', '-ssml <speak>hello</speak>'])
    t.ok(flite.speak(text, recipeOf('alloy'), 1).length > 0.4 * FLITE_SAMPLE_RATE, text);
});

test('an unknown voice always gets the recipe of the same known one', async (t) => {
  const recipes = VOICES.map(recipeOf);
  for (const voice of ['verse', '', 'constructor', '__proto__', '声']) {
    t.ok(recipes.includes(recipeOf(voice)), voice);
    t.equal(recipeOf(voice), recipeOf(voice));
  }
});

function pitchOf(samples: Int16Array): number {
  return medianPitch(
    Float32Array.from(samples, (sample) => sample / 32_768),
    FLITE_SAMPLE_RATE,
  );
}
