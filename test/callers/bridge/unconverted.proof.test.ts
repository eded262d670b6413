/** Audio that was paid for and that the bridge can't convert is kept, and `speechgate resume` writes it to a file. */
import assert from 'node:assert/strict';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import OpenAI, { APIError } from 'openai';
import { type Test, test } from 'tap';
import { FORMATS } from '../../../src/callers/bridge/audio/formats.ts';
import { SavedPurchases } from '../../../src/callers/cli/saved-purchases.ts';
import { HELLO, HELLO_MICRO_USD, openBridge } from '../../support/bridge.ts';
import { speechgate } from '../../support/speechgate.ts';
import { body } from '../../support/stub-upstream.ts';
import { toneWave } from '../../support/tone.ts';
import { until } from '../../support/until.ts';

const ADPCM = toneWave(440, 1, { encoding: 'adpcm', bits: 4 });

async function scene(t: Test, isDurable: boolean) {
  const folder = await mkdtemp(join(tmpdir(), 'speechgate-unconverted-'));
  t.teardown(() => rm(folder, { recursive: true }));
  const opened = await openBridge(t, { bridge: { isDurable, saved: new SavedPurchases(folder) } });
  opened.upstream.mode = body(ADPCM, { contentType: 'audio/wav' });
  const openai = new OpenAI({ baseURL: opened.bridge.url, apiKey: 'anything' });
  const ask = (response_format: keyof typeof FORMATS) =>
    openai.audio.speech.create({ model: 'tts-1', voice: 'alloy', input: HELLO, response_format }).then(
      () => assert.fail('It was converted.'),
      (error) => error as APIError,
    );
  const resume = (...args: string[]) => speechgate({ SPEECHGATE_CONFIG_DIR: folder }, 'resume', ...args);
  return { ...opened, folder, ask, resume };
}

const toResume = ({ message }: Error): string =>
  /speechgate resume (\S+) --out FILE/.exec(message)?.[1] ?? assert.fail(message);

test('audio that cannot be converted is charged once and saved', async (t) => {
  const { ask, calls, upstream, balance } = await scene(t, false);
  const formats = Object.keys(FORMATS) as (keyof typeof FORMATS)[];
  for (const [at, format] of formats.entries()) {
    const error = await ask(format);
    assert.deepEqual([error.status, error.code], [502, 'audio_not_converted'], format);
    assert.equal(error.headers?.get('x-should-retry'), 'false');
    assert.match(error.message, /format 2 with 4 bits.*You were charged \$0\.000198.*speechgate resume/);
    assert.equal(calls.length, at + 1, 'it is asked once');
  }
  await until(async () => (await balance()) === 1_000_000n - HELLO_MICRO_USD * BigInt(formats.length));
  assert.equal(upstream.requests.length, formats.length);
});

for (const isDurable of [false, true]) {
  test(`resume writes the saved audio to a file: ${isDurable ? 'of a job' : 'streamed'}`, async (t) => {
    const { folder, ask, resume } = await scene(t, isDurable);
    const identifier = toResume(await ask('flac'));
    const path = join(folder, 'here.wav');
    const { code, err } = await resume(identifier, '--out', path);
    assert.equal(code, 0, err);
    assert.deepEqual(await readFile(path), ADPCM);
    assert.equal((await resume(identifier, '--out', path)).code, 2, 'it is kept no longer');
  });
}

test('resume lists saved audio and finds it without its identifier', async (t) => {
  const { ask, resume, folder } = await scene(t, false);
  const identifier = toResume(await ask('mp3'));
  assert.deepEqual(JSON.parse((await resume('--list', '--json')).out), { purchases: [], audio: [identifier] });
  const path = join(folder, 'here.wav');
  const { code, out, err } = await resume('--out', path, '--json');
  assert.equal(code, 0, err);
  assert.deepEqual(JSON.parse(out).purchases, [
    { outcome: 'bought', identifier, file: path, bytes: ADPCM.length, contentType: 'audio/wav' },
  ]);
  assert.deepEqual(await readFile(path), ADPCM);
});

test('without a place to save the audio, the error states the charge', async (t) => {
  const { bridge, upstream } = await openBridge(t);
  upstream.mode = body(ADPCM, { contentType: 'audio/wav' });
  const openai = new OpenAI({ baseURL: bridge.url, apiKey: 'anything' });
  await assert.rejects(openai.audio.speech.create({ model: 'tts-1', voice: 'alloy', input: HELLO }), (error) => {
    assert.ok(error instanceof APIError);
    assert.match(error.message, /format 2 with 4 bits.*You were charged \$0\.000198.*could not be saved/);
    return true;
  });
});
