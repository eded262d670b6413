import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { type Test, test } from 'tap';
import { openAudioStore } from '../../src/speech/store/open-store.ts';
import { SAMPLE_TEXT } from '../../src/speech/voice-samples.ts';
import { BASE_URL, type Gateway, startGateway } from '../support/gateway.ts';
import { silentMp3 } from '../support/silent-audio.ts';
import { mp3, openAiError, type StubUpstream, testUpstream, wav } from '../support/stub-upstream.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';
import { makeSamples } from '../support/voice-samples.ts';

const SAMPLE = '/tts/voices/provider-a_nova/sample';
const HD = `${SAMPLE}?model=provider-a/tts-1-hd`;
const VOICES = 18;

async function start(t: Test): Promise<{ gateway: Gateway; upstream: StubUpstream; folder: string }> {
  const upstream = await testUpstream(t);
  const folder = join(await temporaryFolder(t), 'audio');
  const gateway = await startGateway(t, { SPEECH_BASE_URL: upstream.url, AUDIO_STORE: `file:${folder}` });
  return { gateway, upstream, folder };
}

test('a sample is spoken once, by the command, and costs its hearers nothing', async (t) => {
  const { gateway, upstream } = await start(t);
  const missing = await gateway.call(SAMPLE);
  t.strictSame([missing.status, missing.json.error.code], [404, 'NOT_FOUND']);
  t.equal(missing.json.error.message, 'This voice has no sample. Ask the operator to make one.');
  t.equal((await gateway.call('/tts/voices')).json.voices[0].sampleUrl, undefined);
  t.equal(upstream.requests.length, 0, 'a request makes none');

  upstream.mode = mp3(700);
  const made = await makeSamples(gateway);
  t.equal(made.code, 0, made.output);
  t.match(made.out, /^spoken +provider-a\/tts-1-hd +provider-a_nova$/m);
  t.match(made.out, new RegExp(`^Samples: ${VOICES} made, 0 failed, ${SAMPLE_TEXT.length} characters each\\.$`, 'm'));
  t.strictSame([...new Set(upstream.requests.map(({ body }) => body?.input))], [SAMPLE_TEXT]);

  for (const path of [SAMPLE, HD]) {
    const sample = await gateway.call(path);
    t.strictSame([sample.status, sample.headers.get('content-type')], [200, 'audio/mpeg']);
    t.strictSame(sample.bytes, Buffer.from(silentMp3(700)));
  }
  t.match((await makeSamples(gateway)).out, /^Samples: 0 made/);
  t.equal(upstream.requests.length, VOICES);
  t.strictSame(await gateway.db.selectFrom('transfer').select('id').execute(), []);
});

test('a sample can be cached, and is not sent again to those who have it', async (t) => {
  const { gateway } = await start(t);
  await makeSamples(gateway);
  const first = await gateway.call(SAMPLE);
  const etag = first.headers.get('etag') ?? '';
  t.match(etag, /^"[0-9a-f]{64}"$/);
  for (const sent of [etag, `"other", W/${etag}`]) {
    const again = await gateway.call(SAMPLE, { headers: { 'if-none-match': sent } });
    t.strictSame([again.status, again.bytes.length, again.headers.get('etag')], [304, 0, etag]);
    t.equal(again.headers.get('cache-control'), 'public, max-age=3600');
  }
  t.equal((await gateway.call(SAMPLE, { headers: { 'if-none-match': '"other"' } })).status, 200);
  const head = await gateway.call(SAMPLE, { method: 'HEAD' });
  t.strictSame([head.status, head.headers.get('content-length')], [200, String(first.bytes.length)]);
});

test('new samples are listed after a while, also when the clock was set back', async (t) => {
  const { gateway } = await start(t);
  const sampleUrl = async () => (await gateway.call('/tts/voices')).json.voices[0].sampleUrl;
  t.equal(await sampleUrl(), undefined);
  await makeSamples(gateway);
  const [wallMs, elapsedMs] = [Date.now, performance.now.bind(performance)];
  t.intercept(Date, 'now', { value: () => wallMs() - 86_400_000 });
  t.intercept(performance, 'now', { value: () => elapsedMs() + 60_000 });
  t.match(await sampleUrl(), /sample/);
});

test('each list names the samples that exist', async (t) => {
  const { gateway } = await start(t);
  await makeSamples(gateway);
  const { voices } = (await gateway.call('/tts/voices?model=provider-a/tts-1-hd')).json;
  const { models } = (await gateway.call('/tts/models')).json;
  t.strictSame(voices, models[1].voices);
  const urls = models.flatMap((model: { voices: { sampleUrl: string }[] }) =>
    model.voices.map((each) => each.sampleUrl),
  );
  t.equal(new Set(urls).size, VOICES);
  for (const url of urls) t.equal((await gateway.call(url.slice(BASE_URL.length))).status, 200, url);
});

test('another model or voice is refused by name', async (t) => {
  const { gateway } = await start(t);
  const model = await gateway.call(`${SAMPLE}?model=none`);
  t.strictSame([model.status, model.json.error.code], [400, 'UNKNOWN_TTS_MODEL']);
  const voice = await gateway.call('/tts/voices/none/sample');
  t.strictSame([voice.status, voice.json.error.details], [404, { field: 'voice' }]);
  t.match(voice.json.error.message, /GET \/tts\/voices\?model=provider-a\/tts-1 lists its voices\.$/);
});

test('what fails is named, and is spoken by the next run; --again speaks all', async (t) => {
  const { gateway, upstream } = await start(t);
  const refuse = openAiError(500);
  upstream.mode = (request, response) => (request.body?.voice === 'nova' ? refuse : mp3())(request, response);
  const first = await makeSamples(gateway);
  t.equal(first.code, 1);
  t.match(first.out, /^FAILED +provider-a\/tts-1 +provider-a_nova: .+\.$/m);
  t.match(first.out, /^Samples: 16 made, 2 failed/m);
  t.equal((await gateway.call(SAMPLE)).status, 404);
  upstream.mode = wav();
  t.match((await makeSamples(gateway)).out, /MPEG audio\.\nSamples: 0 made, 2 failed/);
  upstream.mode = mp3();
  t.match((await makeSamples(gateway)).out, /^Samples: 2 made, 0 failed/m);
  t.match((await makeSamples(gateway, '--again')).out, /^Samples: 18 made, 0 failed/m);
});

test('without the audio store a sample is 503, and the catalog is listed', async (t) => {
  const { gateway, folder } = await start(t);
  await writeFile(folder, 'in its place');
  t.equal((await gateway.call('/tts/voices')).status, 200);
  const sample = await gateway.call(SAMPLE);
  t.strictSame([sample.status, sample.json.error.details], [503, { reason: 'audio_store_unavailable' }]);
  const made = await makeSamples(gateway);
  t.strictSame(
    [made.code, made.err],
    [
      1,
      'The audio store is not available. The check audio-store of speechgate admin doctor says what to fix. Then run this command again; finished samples are kept.\n',
    ],
  );
});

test('a damaged list of samples counts as none, and is not overwritten', async (t) => {
  const { gateway } = await start(t);
  const store = openAudioStore(gateway.config.jobs.audioStore);
  for (const list of ['[]', '{"voice":1}', '{"voice":"../x"}']) {
    await store.put('samples/index', Buffer.from(list), 'application/json');
    const listed = await gateway.call('/tts/voices');
    t.strictSame([listed.status, listed.json.voices[0].sampleUrl], [200, undefined], list);
    await t.rejects(makeSamples(gateway), /samples\/index in the audio store is no list of voice samples/);
    const kept = await store.open('samples/index');
    t.equal(String(Buffer.concat((await kept?.stream.toArray()) ?? [])), list);
  }
});
