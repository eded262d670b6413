import assert from 'node:assert/strict';
import { test } from 'tap';
import { configOf, DATABASE_URL, testSettings } from '../support/setting.ts';
import { SPEECH_SETTINGS } from '../support/settings-of-speech.ts';

testSettings(SPEECH_SETTINGS);

test('the embedded voice takes no key', async () => {
  assert.deepEqual(configOf({ DATABASE_URL, SPEECH_BASE_URL: 'embedded:', SPEECH_API_KEY: 'key' }).speech, {
    baseUrl: 'embedded:',
    apiKey: undefined,
    timeoutMs: 45_000,
    streaming: { totalMs: 900_000, leaseSeconds: 75, waitingBytes: 256 * 1024 * 1024 },
  });
});
