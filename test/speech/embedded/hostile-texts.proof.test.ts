import assert from 'node:assert/strict';
import { t, test } from 'tap';
import { longestSeconds } from '../../../src/speech/embedded/duration.ts';
import { HOSTILE_TEXTS, LONG_WINDED_TEXTS } from './hostile-texts.ts';
import { readMp3 } from './mp3-frames.ts';
import { speak, startVoice, utterance } from './speak.ts';

const voice = startVoice(t, 2);

test('4096 units are spoken', { jobs: 2 }, async (t) => {
  for (const [name, text] of Object.entries(HOSTILE_TEXTS)) {
    t.test(name, async () => void readMp3(await speak(voice, { text, speed: 2 })));
  }
});

test('the beginning of a long-winded text is spoken', { jobs: 2 }, async (t) => {
  for (const [name, text] of Object.entries(LONG_WINDED_TEXTS)) {
    t.test(name, async () => void readMp3(await speak(voice, { text: text.slice(0, 100), voice: 'alloy', speed: 2 })));
  }
});

for (const [name, text] of Object.entries({ ...HOSTILE_TEXTS, ...LONG_WINDED_TEXTS })) {
  test(`4096 units are spoken in bounded audio and memory: ${name}`, async () => {
    const wanted = { text, voice: 'onyx', speed: 0.5 };
    const slow = await speak(voice, wanted);
    assert.ok(readMp3(slow).seconds <= longestSeconds(utterance(wanted)) + 1);
    assert.ok(process.memoryUsage().rss < 800 * 1024 * 1024, `${process.memoryUsage().rss} bytes`);
  });
}

for (const [name, text] of Object.entries({
  English: 'Glue the sheet to the dark blue background. '.repeat(94).slice(0, 4096),
  digits: '7'.repeat(4096),
}))
  test(`4096 characters are spoken to the end at half the speed: ${name}`, async () => {
    const [plain, slow] = await Promise.all([
      speak(voice, { text, voice: 'ash' }),
      speak(voice, { text, voice: 'ash', speed: 0.5 }),
    ]);
    const ratio = readMp3(slow).seconds / readMp3(plain).seconds;
    assert.ok(ratio > 1.95 && ratio < 2.05, `${ratio}`);
  });
