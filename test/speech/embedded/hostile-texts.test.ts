import { t, test } from 'tap';
import { HOSTILE_TEXTS, LONG_WINDED_TEXTS } from './hostile-texts.ts';
import { readMp3 } from './mp3-frames.ts';
import { speak, startVoice } from './speak.ts';

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
