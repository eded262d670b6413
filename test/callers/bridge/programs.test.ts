/** The official client of OpenAI, unchanged but for its base URL. */
import assert from 'node:assert/strict';
import { buffer } from 'node:stream/consumers';
import OpenAI, { APIError, BadRequestError, ConflictError, NotFoundError, RateLimitError } from 'openai';
import { type Test, test } from 'tap';
import { askBridge, type BridgeUnderTest, HELLO, HELLO_MICRO_USD, openBridge } from '../../support/bridge.ts';
import { probe, withoutProbe } from '../../support/probed-audio.ts';
import { silentMp3 } from '../../support/silent-audio.ts';
import { ControlledStream } from '../../support/stub-upstream.ts';
import { startTcpProxy } from '../../support/tcp-proxy.ts';
import { toneMp3 } from '../../support/tone.ts';
import { until } from '../../support/until.ts';

const ORDER = { model: 'tts-1', voice: 'alloy', input: HELLO } as const;
const STREAMED = { bridge: { isDurable: false } };

const sdk = ({ bridge }: Pick<BridgeUnderTest, 'bridge'>, options: { apiKey?: string; maxRetries?: number } = {}) =>
  new OpenAI({ baseURL: bridge.url, apiKey: 'anything', ...options });

const open = async (t: Test, given?: Parameters<typeof openBridge>[1]) => {
  const opened = await openBridge(t, given);
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
  assert.deepEqual(Buffer.from(await response.arrayBuffer()), silentMp3(1_000));
  assert.equal(response.headers.get('content-type'), 'audio/mpeg');
  assert.equal(response.headers.get('x-speechgate-charged-micro-usd'), String(HELLO_MICRO_USD));
  assert.equal(response.headers.get('x-speechgate-charged-usd'), '0.000198');
  assert.equal(response.headers.get('x-speechgate-balance-micro-usd'), String(1_000_000n - HELLO_MICRO_USD));
  assert.equal(response.headers.get('x-speechgate-voice'), 'provider-a_alloy');
  assert.equal(await balance(), 1_000_000n - HELLO_MICRO_USD);
  assert.equal(upstream.requests[0]?.body?.input, HELLO);
  assert.deepEqual(
    calls.map(({ end, chargedMicroUsd }) => [end, chargedMicroUsd]),
    [['spoken', HELLO_MICRO_USD]],
  );
});

test('with --no-durable audio streams to the client while it is synthesized', async (t) => {
  const { openai, upstream } = await open(t, STREAMED);
  const drip = new ControlledStream();
  upstream.mode = drip.mode;
  const asked = openai.audio.speech.create({ ...ORDER, stream_format: 'audio' });
  await drip.opened;
  await drip.write(silentMp3(960));
  const { body } = await asked;
  assert.ok(body);
  const reader = body.getReader();
  const { value } = await reader.read();
  assert.ok(value && value.length > 0, 'the first piece is here before the last one is made');
  reader.releaseLock();
  const rest = buffer(body);
  await drip.write(silentMp3(480));
  drip.end();
  assert.deepEqual(Buffer.concat([value, await rest]), silentMp3(1_440));
});

/** A second and a half of MP3 at 64 kbit/s. */
const FIRST_BYTES = 12_000;
/** More than any header has. */
const HEADER_BYTES = 9_000;

for (const [format, header] of [
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
    assert.deepEqual(whole.subarray(0, header.length), header);
    const { seconds } = await probe(whole, format);
    assert.ok(Math.abs(seconds - 8) < 0.2, `${seconds} s`);
  });
}

test('stream_format sse sends the events that OpenAI documents', async (t) => {
  const { openai } = await open(t);
  const response = await openai.audio.speech.create({ ...ORDER, stream_format: 'sse' });
  assert.equal(response.headers.get('content-type'), 'text/event-stream');
  const events = (await response.text())
    .trim()
    .split('\n\n')
    .map((event) => JSON.parse(event.replace(/^data: /, '')));
  const last = events.pop();
  assert.equal(last.type, 'speech.audio.done');
  assert.deepEqual(Object.keys(last.usage), ['input_tokens', 'output_tokens', 'total_tokens']);
  assert.ok(events.every(({ type }) => type === 'speech.audio.delta'));
  assert.deepEqual(Buffer.concat(events.map(({ audio }) => Buffer.from(audio, 'base64'))), silentMp3(1_000));
});

test('models are listed, and unknown OpenAI names map to the catalog', async (t) => {
  const { openai, upstream, calls } = await open(t);
  const ids: string[] = [];
  for await (const model of openai.models.list()) ids.push(model.id);
  assert.deepEqual(ids, ['provider-a/tts-1', 'provider-a/tts-1-hd']);
  assert.equal((await openai.models.retrieve('provider-a/tts-1-hd')).owned_by, 'provider-a');
  assert.equal((await openai.models.retrieve('tts-1')).id, 'provider-a/tts-1');
  const missing = await errorOf(openai.models.retrieve('gpt-9'));
  assert.ok(missing instanceof NotFoundError);
  assert.equal(missing.code, 'model_not_found');

  const spoken = async (order: Partial<OpenAI.Audio.SpeechCreateParams>) => {
    await (await openai.audio.speech.create({ ...ORDER, ...order })).arrayBuffer();
    const { model, voice } = upstream.requests.at(-1)?.body ?? {};
    return [model, voice];
  };
  assert.deepEqual(await spoken({ model: 'provider-a/tts-1-hd', voice: 'provider-a_nova' }), ['tts-1-hd', 'nova']);
  assert.deepEqual(await spoken({ model: 'tts-1-hd', voice: { id: 'echo' } }), ['tts-1-hd', 'echo']);
  const stood = await spoken({ model: 'gpt-4o-mini-tts', voice: 'marin', instructions: 'Speak like a pirate.' });
  assert.equal(stood[0], 'tts-1');
  assert.deepEqual(await spoken({ model: 'gpt-4o-mini-tts', voice: 'marin' }), stood);
  assert.deepEqual(calls.at(-1)?.spokenWith?.model, 'provider-a/tts-1');
});

test('members that have no effect are named in a header', async (t) => {
  const { openai } = await open(t);
  const ignored = async (more: object) =>
    (await openai.audio.speech.create({ ...ORDER, ...more })).headers.get('x-speechgate-ignored');
  assert.equal(await ignored({}), null);
  assert.equal(await ignored({ instructions: '', lang: null }), null);
  assert.equal(await ignored({ response_format: null, stream_format: null }), null, 'as absent');
  assert.equal(await ignored({ instructions: 'Speak like a pirate.' }), 'instructions');
  assert.equal(
    await ignored({ instructions: 'Whisper.', backend: 'piper', 'no\r\nheader': 1 }),
    'instructions, backend',
  );
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
    assert.ok(error instanceof BadRequestError, param);
    assert.equal(error.param, param);
    assert.equal(error.type, 'invalid_request_error');
    assert.match(error.message, message);
  }
  assert.equal(await balance(), 1_000_000n);
});

for (const [what, given, code, message] of [
  ['insufficient funds', { cents: 1 }, 'insufficient_quota', /Run: speechgate top-up/],
  ['a price over a cap', { client: { maxPerRequestMicroUsd: 100n } }, 'over_cap', /0\.072000 USD.*0\.000100 USD/],
] as const) {
  test(`${what} is a RateLimitError that is not retried and costs nothing`, async (t) => {
    const { openai, upstream, account, balance, calls } = await open(t, given);
    const before = await balance();
    const error = await errorOf(openai.audio.speech.create({ ...ORDER, input: 'x'.repeat(4_000) }));
    assert.ok(error instanceof RateLimitError);
    assert.deepEqual([error.type, error.code], ['insufficient_quota', code]);
    assert.match(error.message, message);
    assert.doesNotMatch(
      JSON.stringify(calls[0]?.error) + error.message,
      new RegExp(account),
      'the bearer id stays here',
    );
    assert.equal(error.headers?.get('x-should-retry'), 'false');
    assert.deepEqual([calls.length, upstream.requests.length, await balance()], [1, 0, before]);
  });
}

test('paid audio is delivered even if the budget cannot be read afterwards', async (t) => {
  const budget = { read: () => Promise.reject(new Error('The budget is busy.')), concludeLost: async () => {} };
  const { openai, calls } = await open(t, { bridge: { budget } });
  const response = await openai.audio.speech.create(ORDER);
  assert.deepEqual(Buffer.from(await response.arrayBuffer()), silentMp3(1_000));
  assert.equal(response.headers.get('x-speechgate-budget-left-micro-usd'), null);
  assert.deepEqual([calls[0]?.end, calls[0]?.leftMicroUsd, calls[0]?.error], ['spoken', null, undefined]);
});

test('an unknown outcome is a ConflictError, and a retry resumes that purchase', async (t) => {
  let gone: Awaited<ReturnType<typeof startTcpProxy>> | undefined;
  const { openai, balance, upstream, calls } = await open(t, {
    bridge: { isDurable: true },
    through: async (gateway) => {
      gone = await startTcpProxy(t, gateway);
      return gone.url;
    },
  });
  await openai.models.list();
  gone?.mute();
  const asked = errorOf(openai.audio.speech.create(ORDER));
  await until(async () => (await balance()) < 1_000_000n);
  gone?.cut();
  const error = await asked;
  assert.ok(error instanceof ConflictError, String(error));
  assert.equal(error.code, 'outcome_unknown');
  assert.equal(error.headers?.get('x-should-retry'), 'false');
  assert.equal(calls.length, 1);
  gone?.restore();
  const audio = await (await openai.audio.speech.create(ORDER)).arrayBuffer();
  assert.equal(audio.byteLength, silentMp3(1_000).length);
  assert.equal(await balance(), 1_000_000n - HELLO_MICRO_USD);
  assert.equal(upstream.requests.length, 1);
});

test('a program that disconnects is charged, and its retry gets the same audio', async (t) => {
  const { openai, upstream, balance, calls } = await open(t, STREAMED);
  for (const [input, heardBytes] of [
    ['Hello world', 0],
    ['Hello there', silentMp3(960).length],
  ] as const) {
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
    assert.equal((await (await second).arrayBuffer()).byteLength, heardBytes + silentMp3(960).length);
    await until(() => calls.length === before.calls + 2);
    const ended = calls
      .slice(before.calls)
      .map(({ end, isRepeated, chargedMicroUsd }) => [end, isRepeated, chargedMicroUsd]);
    assert.deepEqual(ended.sort(), [
      ['left', false, HELLO_MICRO_USD],
      ['spoken', true, 0n],
    ]);
    assert.equal(await balance(), before.balance - HELLO_MICRO_USD);
    assert.equal(upstream.requests.length, before.requests + 1);
  }
});

test('audio that breaks off ends the response with an error', async (t) => {
  const { bridge, upstream, calls } = await open(t, STREAMED);
  for (const [response_format, input] of [
    ['mp3', 'Hello world'],
    ['pcm', 'Hello there'],
  ] as const) {
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
  assert.deepEqual(
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
  assert.equal((await response.arrayBuffer()).byteLength, silentMp3(1_440).length);
  await closed;
  await assert.rejects(sdk({ bridge }, { maxRetries: 0 }).models.list());
});

/** What a program sends to an OpenAI speech service, read from its public source. */
interface RecordedProgram {
  readonly program: string;
  /** Repository, commit and file in which the request is made. */
  readonly source: string;
  readonly requests: readonly { readonly headers: Record<string, string>; readonly body: Record<string, unknown> }[];
  /** The audio that it expects. */
  readonly codec: 'mp3' | 'pcm_s16le';
}

const PYTHON = { 'user-agent': 'python-requests/2.32.3', accept: '*/*' };
const AXIOS = { accept: 'application/json, text/plain, */*', 'user-agent': 'axios/1.8.2' };

const PROGRAMS: readonly RecordedProgram[] = [
  {
    program: 'Open WebUI',
    source: 'open-webui/open-webui@01fb3e46d3e5865b34b7d9ee2fcabbe380bbe52a backend/open_webui/routers/audio.py',
    // Its browser part names input and voice; the server adds the model, and whose request it is where that is set.
    requests: [
      {
        headers: {
          authorization: 'Bearer sk-anything',
          'x-openwebui-user-name': 'Ada',
          'x-openwebui-user-id': '7',
          'x-openwebui-user-email': 'ada@example.com',
          'x-openwebui-user-role': 'user',
        },
        body: { input: HELLO, voice: 'alloy', model: 'tts-1' },
      },
    ],
    codec: 'mp3',
  },
  {
    program: 'SillyTavern, its OpenAI-compatible speech',
    source: 'SillyTavern/SillyTavern@00a72b5a71195ec03bab5a42c03655f6ebe672e3 src/endpoints/openai.js',
    // Without a key of its own it sends none after the word Bearer.
    requests: [
      {
        headers: { authorization: 'Bearer ', 'user-agent': 'node-fetch' },
        body: { input: HELLO, response_format: 'mp3', voice: 'shimmer', speed: 1, model: 'tts-1' },
      },
    ],
    codec: 'mp3',
  },
  {
    program: "Home Assistant's OpenAI TTS integration",
    source:
      'sfortis/openai_tts@0460cd2fff52ffcf8fc436cecc1f512aa1117381 custom_components/openai_tts/openaitts_engine.py',
    requests: [
      {
        headers: { ...PYTHON, 'accept-encoding': 'gzip, deflate' },
        body: { model: 'tts-1', input: HELLO, voice: 'onyx', response_format: 'wav', speed: 1 },
      },
    ],
    codec: 'pcm_s16le',
  },
  {
    program: 'LibreChat, with speech of OpenAI and of LocalAI',
    source:
      'danny-avila/LibreChat@00b3bc32f0f5dd65befa49a0773dae7d26d8e587 api/server/services/Files/Audio/TTSService.js',
    // For LocalAI it gives the voice as the model, and no voice.
    requests: [
      {
        headers: { ...AXIOS, authorization: 'Bearer sk-anything' },
        body: { input: HELLO, model: 'tts-1', voice: 'nova' },
      },
      { headers: AXIOS, body: { input: HELLO, model: 'alloy', backend: 'piper' } },
    ],
    codec: 'mp3',
  },
];

test('the bridge serves the recorded requests of known programs', { skip: withoutProbe }, async (t) => {
  const { origin, calls } = await openBridge(t);
  for (const { program, requests, codec } of PROGRAMS) {
    await t.test(program, async () => {
      for (const { headers, body } of requests) {
        const before = calls.length;
        const response = await fetch(`${origin}/v1/audio/speech`, {
          method: 'POST',
          headers: { 'content-type': 'application/json', ...headers },
          body: JSON.stringify(body),
        });
        assert.equal(response.status, 200);
        const audio = Buffer.from(await response.arrayBuffer());
        const probed = await probe(audio, codec === 'mp3' ? 'mp3' : 'wav');
        assert.deepEqual([probed.codec, probed.channels], [codec, 1]);
        assert.ok(Math.abs(probed.seconds - 1) < 0.1, String(probed.seconds));
        const { isRepeated, chargedMicroUsd } = calls[before] ?? assert.fail();
        assert.equal(chargedMicroUsd, isRepeated ? 0n : HELLO_MICRO_USD);
      }
    });
  }

  await t.test('Open WebUI gets the id and name of each voice and the id of each model', async () => {
    const read = async (path: string) => (await fetch(`${origin}${path}`, { headers: PYTHON })).json();
    const { voices } = (await read('/v1/audio/voices')) as { voices: object[] };
    assert.deepEqual(voices[0], { id: 'provider-a_alloy', name: 'Alloy', voice: 'alloy' });
    const { models } = (await read('/v1/audio/models')) as { models: { id: string }[] };
    assert.deepEqual(
      models.map(({ id }) => id),
      ['provider-a/tts-1', 'provider-a/tts-1-hd'],
    );
  });
});
