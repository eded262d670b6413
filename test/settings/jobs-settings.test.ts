import assert from 'node:assert/strict';
import { test } from 'tap';
import { configOf, DATABASE_URL, testSettings } from '../support/setting.ts';
import { JOBS_SETTINGS } from '../support/settings-of-jobs.ts';

testSettings(JOBS_SETTINGS);

test('AUDIO_STORE is by default a directory in DATA_DIR', async () => {
  assert.equal(configOf({ DATABASE_URL, DATA_DIR: '/var/lib/speech' }).jobs.audioStore, 'file:/var/lib/speech/audio');
});
