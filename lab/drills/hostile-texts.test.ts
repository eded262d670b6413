import assert from 'node:assert/strict';
import { t, test } from 'tap';
import { HOSTILE_TEXTS, LONG_WINDED_TEXTS } from '../../test/sandbox/voice/hostile-texts.ts';
import { readMp3 } from '../../test/sandbox/voice/mp3-frames.ts';
import { speak, startVoice } from '../../test/sandbox/voice/speak.ts';

/** At 48 kbit/s as many bytes as a gateway accepts. */
const MAX_SECONDS = 11_184;
const MAX_RESIDENT_BYTES = 800 * 1024 * 1024;

const voice = startVoice(t, 2);
t.jobs = 2;

for (const [name, text] of Object.entries(LONG_WINDED_TEXTS)) {
  test(`the beginning of a long text is spoken: ${name}`, async () =>
    void readMp3(await speak(voice, { text: text.slice(0, 100), voice: 'alloy', speed: 2 })));
}

for (const [name, text] of Object.entries({ ...HOSTILE_TEXTS, ...LONG_WINDED_TEXTS })) {
  test(`4096 UTF-16 units need bounded audio and memory: ${name}`, async () => {
    const wanted = { text, voice: 'onyx', speed: 2 };
    const { seconds } = readMp3(await speak(voice, wanted));
    assert.ok(seconds < MAX_SECONDS, `${seconds} s`);
    staysSmall();
  });
}

for (const [name, text] of Object.entries({
  English: 'Glue the sheet to the dark blue background. '.repeat(94).slice(0, 4096),
  digits: '7'.repeat(4096),
}))
  test(`4096 characters at half speed last four times as long as at double: ${name}`, async () => {
    const wanted = { text, voice: 'ash', speed: 0.5 };
    const fast = await speak(voice, { ...wanted, speed: 2 });
    const slow = await speak(voice, wanted);
    const { seconds } = readMp3(slow);
    staysSmall();
    const ratio = seconds / readMp3(fast).seconds;
    assert.ok(ratio > 3.9 && ratio < 4.1, `${ratio}`);
  });

function staysSmall(): void {
  const { rss } = process.memoryUsage();
  assert.ok(rss < MAX_RESIDENT_BYTES, `${rss} bytes`);
}
