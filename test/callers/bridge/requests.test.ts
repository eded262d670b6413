/** What the bridge refuses, since it spends money for whoever reaches it. */
import assert from 'node:assert/strict';
import { type IncomingMessage, type OutgoingHttpHeaders, request } from 'node:http';
import { connect } from 'node:net';
import { networkInterfaces } from 'node:os';
import { text as readAll } from 'node:stream/consumers';
import OpenAI from 'openai';
import { type Test, test } from 'tap';
import { startBridge } from '../../../src/callers/bridge/bridge.ts';
import { type Fallbacks, resolve } from '../../../src/callers/bridge/catalog.ts';
import type { TtsModel, TtsModelsResponse } from '../../../src/contract/types.ts';
import { HELLO, HELLO_MICRO_USD, openBridge } from '../../support/bridge.ts';
import { silentMp3 } from '../../support/silent-audio.ts';
import { ControlledStream } from '../../support/stub-upstream.ts';
import { SAID, talkativeService } from '../../support/talkative-service.ts';
import { until } from '../../support/until.ts';

interface Sent {
  readonly method?: string;
  readonly path?: string;
  readonly headers?: OutgoingHttpHeaders;
  readonly body?: string;
}

const BODY = JSON.stringify({ model: 'tts-1', voice: 'alloy', input: HELLO });
const JSON_TYPE = { 'content-type': 'application/json' };

/** Sends it as it is given, and tells status, headers and the error. */
async function send(origin: string, { method = 'POST', path = '/v1/audio/speech', headers = {}, body }: Sent) {
  const outgoing = request(`${origin}${path}`, { method, headers: { ...JSON_TYPE, ...headers } });
  outgoing.end(body ?? (method === 'POST' ? BODY : undefined));
  const incoming = await new Promise<IncomingMessage>((resolve, reject) => {
    outgoing.once('response', resolve).once('error', reject);
  });
  const text = await readAll(incoming);
  const error = text.startsWith('{') ? JSON.parse(text).error : undefined;
  return { status: incoming.statusCode, headers: incoming.headers, error };
}

test('the bridge refuses foreign hosts, foreign origins and invalid requests', async (t) => {
  const { origin, balance, upstream } = await openBridge(t);
  const { port } = new URL(origin);

  await t.test('a foreign Host header is refused, even if its name resolves to this machine', async () => {
    for (const host of [
      'evil.example',
      `evil.example:${port}`,
      '127.0.0.1',
      `127.0.0.1.evil.example:${port}`,
      'localhost:1',
    ]) {
      const { status, error } = await send(origin, { headers: { host } });
      assert.deepEqual([status, error.code], [421, 'wrong_host'], host);
    }
  });

  await t.test('Host headers that name this machine are accepted', async () => {
    for (const host of [`127.0.0.1:${port}`, `localhost:${port}`, `LOCALHOST:${port}`, `[::1]:${port}`]) {
      assert.equal((await send(origin, { method: 'GET', path: '/v1/models', headers: { host } })).status, 200, host);
    }
  });

  await t.test('requests from pages of other origins are refused without CORS headers', async () => {
    for (const headers of [
      { origin: 'https://evil.example' },
      { origin: 'null' },
      { origin: `http://localhost:${Number(port) + 1}` },
      { origin: `https://127.0.0.1:${port}` },
      { 'sec-fetch-site': 'cross-site' },
      { 'sec-fetch-site': 'same-site' },
    ]) {
      const { status, headers: answered, error } = await send(origin, { headers });
      assert.deepEqual([status, error.code], [403, 'cross_origin'], JSON.stringify(headers));
      assert.deepEqual(
        Object.keys(answered).filter((name) => name.startsWith('access-control')),
        [],
      );
    }
    const preflight = await send(origin, {
      method: 'OPTIONS',
      headers: { origin: 'https://evil.example', 'access-control-request-method': 'POST' },
    });
    assert.equal(preflight.status, 403);
  });

  await t.test('content types that an HTML form can send are refused', async () => {
    for (const type of ['text/plain', 'application/x-www-form-urlencoded', '']) {
      const { status, error } = await send(origin, { headers: { 'content-type': type } });
      assert.deepEqual([status, error.code], [400, 'invalid_content_type'], type);
    }
  });

  await t.test('the bridge listens on loopback only', async () => {
    const outside = Object.values(networkInterfaces())
      .flat()
      .find((each) => each?.family === 'IPv4' && !each.internal);
    if (!outside) return;
    const socket = connect(Number(port), outside.address);
    await new Promise<void>((resolve, reject) => {
      socket.once('error', () => resolve()).once('connect', () => reject(new Error('It answers outside.')));
    });
  });

  await t.test('bodies that are not JSON objects or are too long are refused', async () => {
    for (const body of ['', '[]', '"text"', '{', 'null']) {
      const { status, error } = await send(origin, { body });
      assert.deepEqual([status, error.code], [400, 'invalid_json'], body);
    }
    const long = JSON.stringify({ input: 'x'.repeat(300_000) });
    assert.equal((await send(origin, { body: long })).status, 413);
  });

  await t.test('any other path or method is not found', async () => {
    for (const [method, path] of [
      ['GET', '/v1/audio/speech'],
      ['POST', '/v1/chat/completions'],
      ['DELETE', '/v1/models/tts-1'],
      ['GET', '/'],
      ['GET', '//evil.example/v1/models'],
    ]) {
      const { status, error } = await send(origin, { method: method as string, path: path as string });
      assert.deepEqual([status, error.code, error.type], [404, 'unknown_url', 'invalid_request_error'], path);
    }
  });

  assert.equal(await balance(), 1_000_000n);
  assert.equal(upstream.requests.length, 0);
});

test('with a token set, requests without it are unauthorized', async (t) => {
  const { origin } = await openBridge(t, { bridge: { token: 'sesame' } });
  const get = (authorization?: string) =>
    send(origin, { method: 'GET', path: '/v1/models', headers: authorization === undefined ? {} : { authorization } });
  for (const wrong of [undefined, 'Bearer', 'Bearer sesam', 'Bearer sesame2', 'Basic sesame', 'sesame']) {
    const { status, error } = await get(wrong);
    assert.deepEqual([status, error.code], [401, 'invalid_api_key'], wrong);
  }
  assert.equal((await get('Bearer sesame')).status, 200);
  assert.equal((await get('bearer sesame')).status, 200);
});

// The bridge reads request bodies as strictly as the gateway does.

const ORDER = { model: 'tts-1', voice: 'alloy' };
const MEDIA_TYPE = 'application/json';
const bytes = (input: Uint8Array): Buffer =>
  Buffer.concat([Buffer.from(`${JSON.stringify(ORDER).slice(0, -1)},"input":"`), input, Buffer.from('"}')]);

test('bodies in another charset, encoding or type are refused, not charged', async (t) => {
  const { origin, upstream, calls } = await openBridge(t);
  const send = async (headers: Record<string, string>, body: Uint8Array) => {
    const response = await fetch(`${origin}/v1/audio/speech`, { method: 'POST', headers, body: new Uint8Array(body) });
    const { error } = response.ok ? { error: {} } : ((await response.json()) as { error: Record<string, unknown> });
    return { status: response.status, ...error } as { status: number; code?: string; message?: string };
  };
  const hello = bytes(Buffer.from(HELLO));
  const refused: [headers: Record<string, string>, body: Uint8Array, status: number, message: RegExp][] = [
    ...['iso-8859-1', 'utf-16', 'latin1', '"windows-1252"'].map((charset): (typeof refused)[number] => [
      { 'content-type': `${MEDIA_TYPE}; charset=${charset}` },
      hello,
      415,
      /charset .*UTF-8/,
    ]),
    [{ 'content-type': MEDIA_TYPE, 'content-encoding': 'gzip' }, hello, 415, /content-encoding/],
    [{ 'content-type': 'application/json-patch+json' }, hello, 400, /application\/json/],
    [{ 'content-type': MEDIA_TYPE }, bytes(Buffer.from([0x68, 0xff])), 400, /UTF-8/],
    [{ 'content-type': MEDIA_TYPE }, bytes(Buffer.from('Grüezi', 'latin1')), 400, /UTF-8/],
    [{ 'content-type': MEDIA_TYPE }, Buffer.from(hello.toString(), 'utf16le'), 400, /JSON/],
    [{ 'content-type': MEDIA_TYPE }, hello.subarray(0, -1), 400, /JSON/],
  ];
  for (const [headers, body, status, message] of refused) {
    const answer = await send(headers, body);
    assert.equal(answer.status, status, JSON.stringify(headers));
    assert.match(answer.message ?? '', message);
  }
  assert.equal(upstream.requests.length, 0);

  const read: [type: string, body: Uint8Array][] = [
    [`${MEDIA_TYPE}; charset=utf-8`, hello],
    [`${MEDIA_TYPE}; charset="UTF-8"`, hello],
    [`${MEDIA_TYPE.toUpperCase()};charset=utf8`, hello],
    [MEDIA_TYPE, Buffer.concat([Buffer.from([0xef, 0xbb, 0xbf]), hello])],
  ];
  for (const [type, body] of read) {
    assert.deepEqual((await send({ 'content-type': type }, body)).status, 200, type);
    assert.equal(upstream.requests.at(-1)?.body?.input, HELLO);
  }
  assert.equal(calls.filter(({ end }) => end === 'refused').length, refused.length);
});

const HELLO_ORDER = { model: 'tts-1', voice: 'alloy', input: HELLO } as const;

test('a retry after a client timeout gets the same audio, charged once', async (t) => {
  const { bridge, upstream, balance, calls } = await openBridge(t, { bridge: { isDurable: false } });
  const drip = new ControlledStream();
  upstream.mode = drip.mode;
  const openai = new OpenAI({ baseURL: bridge.url, apiKey: 'anything', maxRetries: 0 });
  const timeout = new AbortController();
  const lost = assert.rejects(openai.audio.speech.create(HELLO_ORDER, { signal: timeout.signal }));
  await drip.opened;
  timeout.abort();
  await lost;
  const asked = openai.audio.speech.create(HELLO_ORDER);
  await drip.write(silentMp3(960));
  drip.end();
  assert.equal((await (await asked).arrayBuffer()).byteLength, silentMp3(960).length);
  await until(() => calls.length === 2);
  assert.equal(await balance(), 1_000_000n - HELLO_MICRO_USD);
  assert.equal(upstream.requests.length, 1);
  const told = calls.map(({ end, isRepeated, chargedMicroUsd }) => [end, isRepeated, chargedMicroUsd]);
  assert.deepEqual(told.sort(), [
    ['left', false, HELLO_MICRO_USD],
    ['spoken', true, 0n],
  ]);
});

const modelOf = (id: string, provider: string, slugs: readonly string[]): TtsModel =>
  ({
    ...{ id, provider, name: id, description: '', available: true, maxInputCharacters: 4096 },
    voices: slugs.map((slug) => ({ id: `${provider}_${slug}`, voice: slug, provider, name: slug })),
    defaultVoice: `${provider}_${slugs[0]}`,
  }) as unknown as TtsModel;

const catalog = (slugs: readonly string[]): TtsModelsResponse =>
  ({
    defaultModel: 'acme/tts-1',
    models: [modelOf('acme/tts-1', 'acme', slugs), modelOf('acme/tts-1-hd', 'acme', slugs)],
  }) as TtsModelsResponse;

const SLUGS = ['de-anna', 'en-nova', 'en-alloy', 'en-us-echo', 'fr-nova'];

const voice = (asked: string | undefined, slugs = SLUGS, fallbacks: Fallbacks = {}): string =>
  resolve(catalog(slugs), { model: 'tts-1', voice: asked }, fallbacks).voice;

test('a voice name matches in any case, with _ or -, with or without provider', async () => {
  for (const asked of [
    'acme_en-us-echo',
    'acme-en-us-echo',
    'ACME_EN_US_ECHO',
    'en-us-echo',
    'en_us_echo',
    'En-US_Echo',
  ]) {
    assert.equal(voice(asked), 'acme_en-us-echo', asked);
  }
  assert.equal(voice('german', SLUGS, { voice: 'DE_Anna' }), 'acme_de-anna', 'a fallback too');
});

test('a model name matches in any case, with _ or -, with or without provider', async () => {
  for (const asked of ['acme/tts-1-hd', 'ACME/TTS_1_HD', 'tts-1-hd', 'tts_1_hd', 'TTS-1-HD']) {
    assert.equal(resolve(catalog(SLUGS), { model: asked, voice: undefined }, {}).model.id, 'acme/tts-1-hd', asked);
  }
});

test('an OpenAI voice name selects the voice that ends in it', async () => {
  for (const [asked, expected] of [
    ['nova', 'acme_en-nova'],
    ['NOVA', 'acme_en-nova'],
    ['alloy', 'acme_en-alloy'],
    ['echo', 'acme_en-us-echo'],
  ] as const) {
    assert.equal(voice(asked), expected);
    assert.equal(voice(asked, SLUGS, { voice: 'de-anna' }), expected, 'rather than the fallback');
  }
  assert.equal(voice('nova', ['en-nova', 'nova']), 'acme_nova', 'the whole name goes first');
  assert.equal(voice('sage', ['massage', 'en-sage']), 'acme_en-sage', 'a part of a word is none');
});

test('an OpenAI voice name without a match gets a stable voice or the fallback', async () => {
  for (const asked of ['marin', 'onyx', 'Shimmer']) {
    assert.equal(voice(asked), voice(asked.toLowerCase()), asked);
    assert.ok(SLUGS.includes(voice(asked).replace('acme_', '')));
    assert.equal(voice(asked, SLUGS, { voice: 'fr-nova' }), 'acme_fr-nova');
  }
  assert.throws(() => voice('nobody'), /acme_de-anna, acme_en-nova/);
  assert.throws(() => voice('anna'), /voice does not exist for/);
});

test('speed 1 is omitted from the request', async (t) => {
  const bodies: Record<string, unknown>[] = [];
  const { origin } = await openBridge(t, {
    client: {
      fetch: async (input, init) => {
        const request = input instanceof Request ? input : new Request(input, init);
        if (request.method === 'POST') bodies.push(JSON.parse(await request.clone().text()));
        return fetch(request);
      },
    },
  });
  for (const speed of [1, 1.25, undefined]) {
    const body = JSON.stringify({ model: 'tts-1', voice: 'alloy', input: HELLO, speed });
    const headers = { 'content-type': 'application/json' };
    const response = await fetch(`${origin}/v1/audio/speech`, { method: 'POST', headers, body });
    assert.equal(response.status, 200);
    await response.arrayBuffer();
  }
  assert.deepEqual(
    bodies.map(({ speed }) => speed),
    [undefined, 1.25],
    'the third order equals the first one',
  );
});

// What a service says reaches a program as the service's: short, printable, and last.

async function start(t: Test) {
  const service = talkativeService();
  const { client } = service;
  const bridge = await startBridge({ client, budget: undefined, flow: 'card', port: 0, token: null });
  t.teardown(() => bridge.close(1_000));
  const ask = async (order: object) => {
    const response = await fetch(`${bridge.url}/audio/speech`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ input: 'Hello', ...order }),
    });
    return ((await response.json()) as { error: { message: string; code: string } }).error;
  };
  const list = async (path: string) => (await fetch(`${bridge.url}${path}`)).text();
  return { ...service, ask, list };
}

test('an error ends with at most 300 printable characters from the service', async (t) => {
  const { ask, refusal } = await start(t);
  for (const status of [400, 413, 429]) {
    refusal.status = status;
    const { message, code } = await ask({ model: 'm0', voice: 'v0' });
    assert.match(message, SAID, `${status}: ${message}`);
    assert.ok(message.length < 600, `${status}: ${message.length} characters`);
    assert.ok(code.length <= 100, code);
  }
});

test('models and voices with invalid ids are neither listed nor bought', async (t) => {
  const { ask, list } = await start(t);
  for (const path of ['/models', '/audio/models', '/audio/voices']) {
    // biome-ignore lint/suspicious/noControlCharactersInRegex: they are what must not be there.
    assert.doesNotMatch(await list(path), /[\u001b\u202e]|\\u001b|W{301}|дом/, path);
  }
  const { message } = await ask({ model: 'm0', voice: 'none' });
  assert.match(message, /It has v0, v1, .* and 50 more\. Nothing was bought\.$/);
});
