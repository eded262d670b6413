import assert from 'node:assert/strict';
import { join } from 'node:path';
import { test } from 'tap';
import { openAudioStore } from '../../src/audio/open-store.ts';
import { parseAudioStoreSetting } from '../../src/audio/store-setting.ts';

const cases: { setting: string; expected: ReturnType<typeof parseAudioStoreSetting> }[] = [
  { setting: 'file:/var/lib/audio', expected: { kind: 'file', path: '/var/lib/audio' } },
  { setting: 'file:///var/lib/audio/', expected: { kind: 'file', path: '/var/lib/audio' } },
  { setting: 'file:some/audio', expected: { kind: 'file', path: join(process.cwd(), 'some/audio') } },
  { setting: 'file:./a b', expected: { kind: 'file', path: join(process.cwd(), 'a b') } },
  { setting: 's3://voices', expected: { kind: 's3', bucket: 'voices', prefix: '' } },
  { setting: 's3://voices/', expected: { kind: 's3', bucket: 'voices', prefix: '' } },
  { setting: 's3://my.voices-1/a/b_c.d/', expected: { kind: 's3', bucket: 'my.voices-1', prefix: 'a/b_c.d' } },
  { setting: 's3://voices//a//b', expected: { kind: 's3', bucket: 'voices', prefix: 'a/b' } },
  { setting: '', expected: undefined },
  { setting: 'file:', expected: undefined },
  { setting: '/var/lib/audio', expected: undefined },
  { setting: 's3:voices', expected: undefined },
  { setting: 's3://', expected: undefined },
  { setting: 's3://ab', expected: undefined },
  { setting: 's3://Voices', expected: undefined },
  { setting: 's3://voices-/a', expected: undefined },
  { setting: 's3://voices/a/../b', expected: undefined },
  { setting: 's3://voices/a?versioning', expected: undefined },
  { setting: 's3://key:secret@voices/a', expected: undefined },
  { setting: 'https://voices.example/a', expected: undefined },
];

for (const { setting, expected } of cases) {
  test(`AUDIO_STORE=${setting} is ${expected ? JSON.stringify(expected) : 'refused'}`, async () => {
    assert.deepEqual(parseAudioStoreSetting(setting), expected);
    if (!expected) assert.throws(() => openAudioStore(setting), TypeError);
  });
}
