import { after, describe, test } from 'node:test';
import { HOSTILE_TEXTS, LONG_WINDED_TEXTS } from './hostile-texts.ts';
import { readMp3 } from './mp3-frames.ts';
import { speak, startVoice } from './speak.ts';

const voice = startVoice({ after }, 2);

describe('4096 units are spoken', { concurrency: 2 }, () => {
  for (const [name, text] of Object.entries(HOSTILE_TEXTS)) {
    test(name, async () => void readMp3(await speak(voice, { text, speed: 2 })));
  }
});

describe('the beginning of a long-winded text is spoken', { concurrency: 2 }, () => {
  for (const [name, text] of Object.entries(LONG_WINDED_TEXTS)) {
    test(name, async () => void readMp3(await speak(voice, { text: text.slice(0, 100), voice: 'alloy', speed: 2 })));
  }
});
