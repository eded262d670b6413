import assert from 'node:assert/strict';
import { test } from 'tap';
import { firstForeignLetter } from '../../../src/speech/embedded/legible.ts';
import { FOREIGN_TEXTS } from './hostile-texts.ts';
import { startVoice, utterance } from './speak.ts';

const LEGIBLE = {
  English: 'Hello world, it costs $3.50!',
  'other languages in Latin letters': 'Übergröße, źdźbło, không, nasılsınız, où, ßæøœđı',
  'letters with combining marks': 'e\u0301\u0302 a\u030a',
  'Latin letters of other shapes': 'Ｈｅｌｌｏ 𝐇𝐞𝐥𝐥𝐨 ℍ Ⅳ ﬁ ⁿ ª',
  'units and signs': '5 µm, 20 ℃, € £ § ™ ½ → ∑ ©',
  digits: '1 ١٢٣ १२३ ①',
  emoji: '😂🤷🏽‍♀️👨‍👩‍👧🇩🇪',
  'nothing to speak (R43)': '... \u200b\u200f \ud800 \u0301',
};

for (const [name, text] of Object.entries(LEGIBLE)) {
  test(`the embedded voice reads ${name}`, async () => assert.equal(firstForeignLetter(text), undefined));
}

for (const [name, text] of Object.entries(FOREIGN_TEXTS)) {
  test(`the embedded voice does not read ${name}`, async () => {
    assert.equal(firstForeignLetter(text), 0);
    assert.equal(firstForeignLetter(`😂 "${text}"`), 4);
  });
}

test('it refuses for good, and tells neither the text nor a letter of it', async (t) => {
  const voice = startVoice(t, 1);
  const refusal = voice.refuse?.(utterance({ text: 'Say 你好 now' }));
  assert.deepEqual([refusal?.code, refusal?.transient], ['INVALID_REQUEST', false]);
  assert.doesNotMatch(refusal?.message ?? '', /[^\x20-\x7e]|Say/);
  assert.equal(voice.refuse?.(utterance({ text: LEGIBLE.emoji })), undefined);
});
