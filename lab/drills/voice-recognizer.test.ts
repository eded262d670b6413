import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { test } from 'tap';
import { VOICES } from '../../src/sandbox/voice/recipes.ts';
import { speak, startVoice } from '../../test/sandbox/voice/speak.ts';
import { missingProgram } from '../../test/support/missing-program.ts';

const SENTENCE = 'the quick brown fox jumps over the lazy dog';
const RECOGNIZER = 'pocketsphinx_continuous';

const run = promisify(execFile);

const skip = missingProgram('ffmpeg') ?? missingProgram(RECOGNIZER) ?? false;

test('a speech recognizer understands most words of most voices', { skip }, async (t) => {
  const directory = await mkdtemp(join(tmpdir(), 'speechgate-recognizer-'));
  t.teardown(() => rm(directory, { recursive: true }));
  const voice = startVoice(t, 2);

  const hear = async (name: string): Promise<string> => {
    const mp3 = join(directory, `${name}.mp3`);
    const wav = join(directory, `${name}.wav`);
    await writeFile(mp3, await speak(voice, { text: `${SENTENCE}.`, voice: name }));
    // The recognizer wants some silence around an utterance.
    await run('ffmpeg', ['-v', 'error', '-i', mp3, '-af', 'adelay=300,apad=pad_dur=0.3', '-ar', '16000', wav]);
    const { stdout } = await run(RECOGNIZER, ['-infile', wav, '-logfn', '/dev/null']);
    return stdout.trim();
  };

  const words = SENTENCE.split(' ');
  const understood: string[] = [];
  await Promise.all(
    VOICES.map(async (name) => {
      const heard = await hear(name);
      const found = words.filter((word) => heard.split(/\s+/).includes(word)).length;
      t.comment(`${name}: ${found} of ${words.length}: ${heard}`);
      if (found >= 6) understood.push(name);
    }),
  );
  assert.ok(understood.length >= 7, `only ${understood.join(', ')}`);
});
