/** The official client of OpenAI, unchanged but for its base URL. */
import assert from 'node:assert/strict';
import OpenAI, { APIError, BadRequestError, ConflictError, NotFoundError, RateLimitError } from 'openai';
import { type Test, t, test } from 'tap';
import { askBridge, type BridgeUnderTest, HELLO, HELLO_MICRO_USD, openBridge } from '../../support/bridge.ts';
import { startCardGateway } from '../../support/client.ts';
import { probe, withoutProbe } from '../../support/probed-audio.ts';
import { silentMp3 } from '../../support/silent-audio.ts';
import { ControlledStream, mp3 } from '../../support/stub-upstream.ts';
import { toneMp3 } from '../../support/tone.ts';
import { until } from '../../support/until.ts';

const ORDER = { model: 'tts-1', voice: 'alloy', input: HELLO } as const;
const STREAMED = { bridge: { isDurable: false } };
const gateway = await startCardGateway(t);

const sdk = ({ bridge }: Pick<BridgeUnderTest, 'bridge'>, options: { apiKey?: string; maxRetries?: number } = {}) =>
  new OpenAI({ baseURL: bridge.url, apiKey: 'anything', ...options });

const open = async (t: Test, given?: Parameters<typeof openBridge>[1]) => {
  gateway.upstream.mode = mp3();
  const opened = await openBridge(t, { gateway, ...given });
  return { ...opened, openai: sdk(opened) };
};

/** The error that it rejects with. */
async function errorOf(promise: Promise<unknown>): Promise<APIError> {
  const error = await promise.catch((thrown) => thrown);
  assert.ok(error instanceof APIError, String(error));
  return error;
}

test('a speech request returns the audio and its price', async (t) => {
  const { openai, upstream, balance, calls } = await open(t);
  const response = await openai.audio.speech.create(ORDER);
  t.strictSame(Buffer.from(await response.arrayBuffer()), silentMp3(1_000));
  t.equal(response.headers.get('content-type'), 'audio/mpeg');
  t.equal(response.headers.get('x-speechgate-charged-micro-usd'), String(HELLO_MICRO_USD));
  t.equal(response.headers.get('x-speechgate-charged-usd'), '0.000198');
  t.equal(response.headers.get('x-speechgate-balance-micro-usd'), String(1_000_000n - HELLO_MICRO_USD));
  t.equal(response.headers.get('x-speechgate-voice'), 'provider-a_alloy');
  t.strictSame([await balance(), upstream.requests.at(-1)?.body?.input], [1_000_000n - HELLO_MICRO_USD, HELLO]);
  const told = calls.map(({ end, chargedMicroUsd }) => [end, chargedMicroUsd]);
  t.strictSame(told, [['spoken', HELLO_MICRO_USD]]);
});

/** A second and a half of MP3 at 64 kbit/s. */
const FIRST_BYTES = 12_000;
/** More than any header has. */
const HEADER_BYTES = 9_000;

for (const [format, header] of [
  ['mp3', Buffer.from('\xff\xf3', 'latin1')],
  ['wav', Buffer.from('RIFF\xff\xff\xff\xffWAVE', 'latin1')],
  ['flac', Buffer.from('fLaC')],
] as const) {
  test(`with --no-durable ${format} streams while it is synthesized`, { skip: withoutProbe }, async (t) => {
    const { bridge, upstream } = await open(t, STREAMED);
    const audio = await toneMp3(440, 24_000, 8);
    const drip = new ControlledStream();
    upstream.mode = drip.mode;
    const asked = askBridge(bridge.url, { response_format: format });
    await drip.opened;
    await drip.write(audio.subarray(0, FIRST_BYTES));
    const reader = ((await asked).body as ReadableStream<Uint8Array>).getReader();
    const parts: Uint8Array[] = [];
    for (let size = 0; size < HEADER_BYTES; ) {
      const { value } = await reader.read();
      assert.ok(value, 'it has begun before the last of it is made');
      size += value.length;
      parts.push(value);
    }
    await drip.write(audio.subarray(FIRST_BYTES));
    drip.end();
    for (let step = await reader.read(); !step.done; step = await reader.read()) parts.push(step.value);
    const whole = Buffer.concat(parts);
    t.strictSame(whole.subarray(0, header.length), header);
    const { seconds } = await probe(whole, format);
    t.ok(Math.abs(seconds - 8) < 0.2, `${seconds} s`);
  });
}

test('stream_format sse sends the events that OpenAI documents', async (t) => {
  const { openai } = await open(t);
  const response = await openai.audio.speech.create({ ...ORDER, stream_format: 'sse' });
  t.equal(response.headers.get('content-type'), 'text/event-stream');
  const events = (await response.text())
    .trim()
    .split('\n\n')
    .map((event) => JSON.parse(event.replace(/^data: /, '')));
  const last = events.pop();
  t.equal(last.type, 'speech.audio.done');
  t.strictSame(Object.keys(last.usage), ['input_tokens', 'output_tokens', 'total_tokens']);
  t.ok(events.every(({ type }) => type === 'speech.audio.delta'));
  t.strictSame(Buffer.concat(events.map(({ audio }) => Buffer.from(audio, 'base64'))), silentMp3(1_000));
});

test('models are listed, and unknown OpenAI names map to the catalog', async (t) => {
  const { openai, upstream, calls } = await open(t);
  const ids: string[] = [];
  for await (const model of openai.models.list()) ids.push(model.id);
  t.strictSame(ids, ['provider-a/tts-1', 'provider-a/tts-1-hd']);
  t.equal((await openai.models.retrieve('provider-a/tts-1-hd')).owned_by, 'provider-a');
  t.equal((await openai.models.retrieve('tts-1')).id, 'provider-a/tts-1');
  const missing = await errorOf(openai.models.retrieve('gpt-9'));
  t.ok(missing instanceof NotFoundError);
  t.equal(missing.code, 'model_not_found');
  const spoken = async (order: Partial<OpenAI.Audio.SpeechCreateParams>) => {
    await (await openai.audio.speech.create({ ...ORDER, ...order })).arrayBuffer();
    const { model, voice } = upstream.requests.at(-1)?.body ?? {};
    return [model, voice];
  };
  t.strictSame(await spoken({ model: 'tts-1-hd', voice: { id: 'echo' } }), ['tts-1-hd', 'echo']);
  const stood = await spoken({ model: 'gpt-4o-mini-tts', voice: 'marin', instructions: 'Speak like a pirate.' });
  t.equal(stood[0], 'tts-1');
  t.strictSame(await spoken({ model: 'gpt-4o-mini-tts', voice: 'marin' }), stood);
  t.strictSame(calls.at(-1)?.spokenWith?.model, 'provider-a/tts-1');
});

test('members that have no effect are named in a header', async (t) => {
  const { openai } = await open(t);
  const ignored = async (more: object) =>
    (await openai.audio.speech.create({ ...ORDER, ...more })).headers.get('x-speechgate-ignored');
  t.strictSame([await ignored({}), await ignored({ instructions: '', lang: null })], [null, null]);
  t.equal(await ignored({ response_format: null, stream_format: null }), null, 'as absent');
  t.equal(await ignored({ instructions: 'Speak like a pirate.' }), 'instructions');
  t.equal(await ignored({ instructions: 'Whisper.', backend: 'piper', 'no\r\nheader': 1 }), 'instructions, backend');
});

test('an invalid request is an uncharged BadRequestError that names the field', async (t) => {
  const { openai, balance } = await open(t);
  const cases = [
    [{ response_format: 'midi' }, 'response_format', /mp3, wav, pcm, flac, opus, aac/],
    [{ speed: 3 }, 'speed', /from 0.5 to 2/],
    [{ speed: 5 }, 'speed', /from 0.25 to 4/],
    [{ voice: 'nobody' }, 'voice', /provider-a_alloy/],
    [{ input: '' }, 'input', /text/],
    [{ input: 'x'.repeat(4_097) }, 'input', /4097 characters.* 4096/],
    [{ stream_format: 'smoke' }, 'stream_format', /audio or sse/],
  ] as const;
  for (const [change, param, message] of cases) {
    const error = await errorOf(openai.audio.speech.create({ ...ORDER, ...change } as never));
    t.ok(error instanceof BadRequestError, param);
    t.equal(error.param, param);
    t.equal(error.type, 'invalid_request_error');
    t.match(error.message, message);
  }
  t.equal(await balance(), 1_000_000n);
});

for (const [what, given, code, message] of [
  ['insufficient funds', { cents: 1 }, 'insufficient_quota', /Run: speechgate top-up/],
  ['a price over a cap', { client: { maxPerRequestMicroUsd: 100n } }, 'over_cap', /0\.072000 USD.*0\.000100 USD/],
] as const) {
  test(`${what} is a RateLimitError that is not retried and costs nothing`, async (t) => {
    const { openai, upstream, account, balance, calls } = await open(t, given);
    const [before, asked] = [await balance(), upstream.requests.length];
    const error = await errorOf(openai.audio.speech.create({ ...ORDER, input: 'x'.repeat(4_000) }));
    t.ok(error instanceof RateLimitError);
    t.strictSame([error.type, error.code], ['insufficient_quota', code]);
    t.match(error.message, message);
    t.notMatch(JSON.stringify(calls[0]?.error) + error.message, new RegExp(account), 'the bearer id stays here');
    t.equal(error.headers?.get('x-should-retry'), 'false');
    t.strictSame([calls.length, upstream.requests.length, await balance()], [1, asked, before]);
  });
}

test('paid audio is delivered even if the budget cannot be read afterwards', async (t) => {
  const budget = { read: () => Promise.reject(new Error('The budget is busy.')), concludeLost: async () => {} };
  const { openai, calls } = await open(t, { bridge: { budget } });
  const response = await openai.audio.speech.create(ORDER);
  t.strictSame(Buffer.from(await response.arrayBuffer()), silentMp3(1_000));
  t.equal(response.headers.get('x-speechgate-budget-left-micro-usd'), null);
  t.strictSame([calls[0]?.end, calls[0]?.leftMicroUsd, calls[0]?.error], ['spoken', null, undefined]);
});

test('an unknown outcome is a ConflictError, and a retry resumes that purchase', async (t) => {
  let isCut = true;
  const losing: typeof fetch = async (...call) => {
    const response = await fetch(...call);
    if (isCut && response.status === 202) throw new TypeError('The line is cut.');
    return response;
  };
  const { openai, balance, calls } = await open(t, { bridge: { isDurable: true }, client: { fetch: losing } });
  const error = await errorOf(openai.audio.speech.create(ORDER));
  t.ok(error instanceof ConflictError, String(error));
  t.strictSame([error.code, error.headers?.get('x-should-retry'), calls.length], ['outcome_unknown', 'false', 1]);
  isCut = false;
  t.equal((await (await openai.audio.speech.create(ORDER)).arrayBuffer()).byteLength, silentMp3(1_000).length);
  t.equal(await balance(), 1_000_000n - HELLO_MICRO_USD);
});

test('a program that disconnects is charged, and its retry gets the same audio', async (t) => {
  const { openai, upstream, balance, calls } = await open(t, STREAMED);
  for (const [input, heardBytes] of Object.entries({ 'Hello world': 0, 'Hello there': silentMp3(960).length })) {
    const before = { balance: await balance(), calls: calls.length, requests: upstream.requests.length };
    const drip = new ControlledStream();
    upstream.mode = drip.mode;
    const leaving = new AbortController();
    const first = openai.audio.speech.create({ ...ORDER, input }, { signal: leaving.signal });
    await drip.opened;
    if (heardBytes > 0) {
      await drip.write(silentMp3(960));
      await first;
    }
    leaving.abort();
    await first.catch(() => {});
    const second = openai.audio.speech.create({ ...ORDER, input });
    await drip.write(silentMp3(960));
    drip.end();
    t.equal((await (await second).arrayBuffer()).byteLength, heardBytes + silentMp3(960).length);
    await until(() => calls.length === before.calls + 2);
    const ended = calls
      .slice(before.calls)
      .map(({ end, isRepeated, chargedMicroUsd }) => [end, isRepeated, chargedMicroUsd]);
    t.strictSame(ended.sort(), [
      ['left', false, HELLO_MICRO_USD],
      ['spoken', true, 0n],
    ]);
    t.equal(await balance(), before.balance - HELLO_MICRO_USD);
    t.equal(upstream.requests.length, before.requests + 1);
  }
});

test('audio that breaks off ends the response with an error', async (t) => {
  const { bridge, upstream, calls } = await open(t, STREAMED);
  for (const [input, response_format] of Object.entries({ 'Hello world': 'mp3', 'Hello there': 'pcm' } as const)) {
    const drip = new ControlledStream();
    upstream.mode = drip.mode;
    const asked = sdk({ bridge }, { maxRetries: 0 }).audio.speech.create({ ...ORDER, input, response_format });
    await drip.opened;
    await drip.write(silentMp3(4_800));
    const response = await asked;
    drip.reset();
    await assert.rejects(response.arrayBuffer(), response_format);
  }
  await until(() => calls.length === 2);
  t.strictSame(
    calls.map(({ end, chargedMicroUsd, error }) => [end, chargedMicroUsd, error?.code]),
    [
      ['broken', 0n, 'audio_lost'],
      ['broken', 0n, 'audio_lost'],
    ],
  );
});

test('stopping waits for running speech to finish', async (t) => {
  const { openai, bridge, upstream } = await open(t, STREAMED);
  const drip = new ControlledStream();
  upstream.mode = drip.mode;
  const asked = openai.audio.speech.create(ORDER);
  await drip.opened;
  await drip.write(silentMp3(960));
  const response = await asked;
  const closed = bridge.close(10_000);
  await drip.write(silentMp3(480));
  drip.end();
  t.equal((await response.arrayBuffer()).byteLength, silentMp3(1_440).length);
  await closed;
  await t.rejects(sdk({ bridge }, { maxRetries: 0 }).models.list());
});

const SPOKEN = { model: 'tts-1', input: HELLO };
const AXIOS = { accept: 'application/json, text/plain, */*', 'user-agent': 'axios/1.8.2' };

/** What programs send to an OpenAI speech service, read from their public sources at a commit, and the audio they expect. */
const PROGRAMS: readonly (readonly [source: string, headers: object, body: object, codec: 'mp3' | 'pcm_s16le'])[] = [
  [
    'open-webui/open-webui@01fb3e46d3e5 backend/open_webui/routers/audio.py',
    { authorization: 'Bearer sk-anything', 'x-openwebui-user-name': 'Ada', 'x-openwebui-user-role': 'user' },
    { ...SPOKEN, voice: 'alloy' },
    'mp3',
  ],
  [
    // Without a key of its own it sends none after the word Bearer.
    'SillyTavern/SillyTavern@00a72b5a7119 src/endpoints/openai.js',
    { authorization: 'Bearer ', 'user-agent': 'node-fetch' },
    { ...SPOKEN, response_format: 'mp3', voice: 'shimmer', speed: 1 },
    'mp3',
  ],
  [
    'sfortis/openai_tts@0460cd2fff52 custom_components/openai_tts/openaitts_engine.py',
    { 'user-agent': 'python-requests/2.32.3', accept: '*/*', 'accept-encoding': 'gzip, deflate' },
    { ...SPOKEN, voice: 'onyx', response_format: 'wav', speed: 1 },
    'pcm_s16le',
  ],
  [
    // With LocalAI it gives the voice as the model, and no voice.
    'danny-avila/LibreChat@00b3bc32f0f5 api/server/services/Files/Audio/TTSService.js',
    AXIOS,
    { input: HELLO, model: 'alloy', backend: 'piper' },
    'mp3',
  ],
];

test('the bridge serves the recorded requests of known programs', { skip: withoutProbe }, async (t) => {
  const { bridge, calls } = await open(t);
  for (const [source, headers, body, codec] of PROGRAMS) {
    await t.test(source, async (t) => {
      const before = calls.length;
      const response = await fetch(`${bridge.url}/audio/speech`, {
        method: 'POST',
        headers: { 'content-type': 'application/json', ...headers },
        body: JSON.stringify(body),
      });
      t.equal(response.status, 200);
      const probed = await probe(Buffer.from(await response.arrayBuffer()), codec === 'mp3' ? 'mp3' : 'wav');
      t.strictSame([probed.codec, probed.channels], [codec, 1]);
      t.ok(Math.abs(probed.seconds - 1) < 0.1, String(probed.seconds));
      const { isRepeated, chargedMicroUsd } = calls[before] ?? assert.fail();
      t.equal(chargedMicroUsd, isRepeated ? 0n : HELLO_MICRO_USD);
    });
  }
  await t.test('Open WebUI gets the id and name of each voice and the id of each model', async (t) => {
    const read = async (path: string) => (await fetch(`${bridge.url}${path}`)).json();
    const { voices } = (await read('/audio/voices')) as { voices: object[] };
    t.strictSame(voices[0], { id: 'provider-a_alloy', name: 'Alloy', voice: 'alloy' });
    const { models } = (await read('/audio/models')) as { models: { id: string }[] };
    const ids = models.map(({ id }) => id);
    t.strictSame(ids, ['provider-a/tts-1', 'provider-a/tts-1-hd']);
  });
});
