import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { MAX_AUDIO_SECONDS } from '../../../src/speech/embedded/narrator.ts';
import { HOSTILE_TEXTS, LONG_WINDED_TEXTS } from './hostile-texts.ts';
import { readMp3 } from './mp3-frames.ts';
import { speak, startVoice } from './speak.ts';

const voice = startVoice({ after }, 2);

for (const [name, text] of Object.entries({ ...HOSTILE_TEXTS, ...LONG_WINDED_TEXTS })) {
  test(`4096 units are spoken in bounded audio and memory: ${name}`, async () => {
    const slow = await speak(voice, { text, voice: 'onyx', speed: 0.5 });
    assert.ok(readMp3(slow).seconds <= MAX_AUDIO_SECONDS + 1);
    assert.ok(process.memoryUsage().rss < 800 * 1024 * 1024, `${process.memoryUsage().rss} bytes`);
  });
}

test('4096 characters of English are spoken to the end at half the speed', async () => {
  const text = 'Glue the sheet to the dark blue background. '.repeat(94).slice(0, 4096);
  const [plain, slow] = await Promise.all([
    speak(voice, { text, voice: 'ash' }),
    speak(voice, { text, voice: 'ash', speed: 0.5 }),
  ]);
  const ratio = readMp3(slow).seconds / readMp3(plain).seconds;
  assert.ok(ratio > 1.95 && ratio < 2.05, `${ratio}`);
});
