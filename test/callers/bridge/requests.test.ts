/** What the bridge refuses, since it spends money for whoever reaches it. */
import assert from 'node:assert/strict';
import { createServer, type IncomingMessage, type OutgoingHttpHeaders, request } from 'node:http';
import { connect } from 'node:net';
import { networkInterfaces } from 'node:os';
import { text as readAll } from 'node:stream/consumers';
import { t, test } from 'tap';
import { type Fallbacks, resolve } from '../../../src/callers/bridge/catalog.ts';
import type { TtsModel, TtsModelsResponse } from '../../../src/contract/types.ts';
import { askBridge, bridgeOf, HELLO, HELLO_MICRO_USD, openBridge } from '../../support/bridge.ts';
import { openBrowser, withoutChromium } from '../../support/chromium.ts';
import { startCardGateway } from '../../support/client.ts';
import { serve } from '../../support/listening.ts';
import { SAID, talkativeService } from '../../support/talkative-service.ts';

interface Sent {
  readonly method?: string;
  readonly path?: string;
  readonly headers?: OutgoingHttpHeaders;
  readonly body?: string | Buffer;
}

const gateway = await startCardGateway(t);
const ORDER = { model: 'tts-1', voice: 'alloy' };
const BODY = JSON.stringify({ ...ORDER, input: HELLO });
const JSON_TYPE = { 'content-type': 'application/json' };

/** An address by which other machines, and containers, reach this one. */
const findOutsideAddress = () =>
  Object.values(networkInterfaces())
    .flat()
    .find((each) => each?.family === 'IPv4' && !each.internal);

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

type Refusal = { readonly error: { readonly message: string; readonly code: string } };

const TOKEN = 'open-sesame';
const AUTHORIZATION = { authorization: `Bearer ${TOKEN}` };
const PAGE = 'http://localhost:3000';

test('a bridge with a host serves programs that know its token, by any of its names', async (t) => {
  const outside = findOutsideAddress();
  const { bridge } = await openBridge(t, { gateway, bridge: { host: '0.0.0.0', token: TOKEN } });
  const { port, hostname } = new URL(bridge.url);
  t.equal(hostname, '127.0.0.1');
  const origin = `http://${outside?.address ?? hostname}:${port}`;
  t.strictSame([(await send(origin, {})).status, (await send(origin, { headers: AUTHORIZATION })).status], [401, 200]);
  t.equal((await send(origin, { headers: { ...AUTHORIZATION, host: 'host.docker.internal' } })).status, 200);
  const page = await send(origin, { headers: { ...AUTHORIZATION, origin: PAGE } });
  t.strictSame([page.status, page.error.code], [403, 'cross_origin']);
});

test('pages of an allowed origin may use the bridge, and no other pages', async (t) => {
  const { origin } = await openBridge(t, { gateway, bridge: { allowedOrigins: [PAGE], token: TOKEN } });
  const cross = { origin: PAGE, 'sec-fetch-site': 'same-site' };
  const asked = { 'access-control-request-method': 'POST', 'access-control-request-headers': 'authorization,x-more' };
  const preflight = await send(origin, { method: 'OPTIONS', headers: { ...cross, ...asked } });
  t.strictSame([preflight.status, preflight.headers['access-control-allow-methods']], [204, 'GET, POST']);
  t.equal(preflight.headers['access-control-allow-headers'], 'authorization,x-more');
  for (const [headers, status] of [[AUTHORIZATION, 200] as const, [{}, 401] as const]) {
    const answer = await send(origin, { headers: { ...cross, ...headers } });
    t.equal(answer.status, status);
    const { 'access-control-allow-origin': allowed, 'access-control-expose-headers': exposed, vary } = answer.headers;
    t.strictSame([allowed, exposed, vary], [PAGE, '*', 'origin']);
  }
  for (const headers of [
    { origin: 'http://localhost:3001' },
    { 'sec-fetch-site': 'cross-site' },
    { ...cross, host: 'evil.example' },
  ]) {
    const { status, headers: answered } = await send(origin, { headers: { ...AUTHORIZATION, ...headers } });
    t.strictSame([status, answered['access-control-allow-origin']], ['host' in headers ? 421 : 403, undefined]);
  }
});

test('a page in Chromium speaks through the bridge that allows its origin', { skip: withoutChromium }, async (t) => {
  const page = await (await openBrowser(t)).newPage();
  const site = createServer((_, response) => response.setHeader('content-type', 'text/html').end('<title>App</title>'));
  const pageOrigin = (await serve(t, site)).replace('127.0.0.1', 'localhost');
  const { bridge, balance } = await openBridge(t, { gateway, bridge: { allowedOrigins: [pageOrigin], token: TOKEN } });
  await page.goto(pageOrigin);
  const speak = (token: string) =>
    page.evaluate<[number, string | null]>(`(async () => {
      const headers = { authorization: 'Bearer ${token}', 'content-type': 'application/json' };
      const response = await fetch('${bridge.url}/audio/speech', { method: 'POST', headers, body: '${BODY}' });
      await response.arrayBuffer();
      return [response.status, response.headers.get('x-speechgate-charged-usd')];
    })()`);
  t.strictSame(await speak(TOKEN), [200, '0.000198']);
  t.strictSame(await speak('wrong'), [401, null]);
  t.equal(await balance(), 1_000_000n - HELLO_MICRO_USD);
});

test('the bridge refuses foreign hosts, foreign origins and invalid requests', async (t) => {
  const { origin, balance, calls, upstream } = await openBridge(t, { gateway });
  const asked = upstream.requests.length;
  const { port } = new URL(origin);

  await t.test('a foreign Host header is refused, even if its name resolves to this machine', async (t) => {
    for (const host of [
      'evil.example',
      `evil.example:${port}`,
      '127.0.0.1',
      `127.0.0.1.evil.example:${port}`,
      'localhost:1',
    ]) {
      const { status, error } = await send(origin, { headers: { host } });
      t.strictSame([status, error.code], [421, 'wrong_host'], host);
    }
  });

  await t.test('Host headers that name this machine are accepted', async (t) => {
    for (const host of [`127.0.0.1:${port}`, `localhost:${port}`, `LOCALHOST:${port}`, `[::1]:${port}`])
      t.equal((await send(origin, { method: 'GET', path: '/v1/models', headers: { host } })).status, 200, host);
  });

  await t.test('requests from pages of other origins are refused without CORS headers', async (t) => {
    for (const headers of [
      { origin: 'https://evil.example' },
      { origin: 'null' },
      { origin: `http://localhost:${Number(port) + 1}` },
      { origin: `https://127.0.0.1:${port}` },
      { 'sec-fetch-site': 'cross-site' },
      { 'sec-fetch-site': 'same-site' },
    ]) {
      const { status, headers: answered, error } = await send(origin, { headers });
      t.strictSame([status, error.code], [403, 'cross_origin'], JSON.stringify(headers));
      const others = Object.keys(answered).filter((name) => name.startsWith('access-control'));
      t.strictSame(others, []);
    }
    const preflight = await send(origin, {
      method: 'OPTIONS',
      headers: { origin: 'https://evil.example', 'access-control-request-method': 'POST' },
    });
    t.equal(preflight.status, 403);
  });

  await t.test('bodies are read as strictly as the gateway reads them', async (t) => {
    const refused: readonly (readonly [
      body: string | Buffer,
      status: number,
      code: string,
      message: RegExp,
      headers?: object,
    ])[] = [
      ...['text/plain', 'application/x-www-form-urlencoded', '', 'application/json-patch+json'].map(
        (type) => [BODY, 400, 'invalid_content_type', /application\/json/, { 'content-type': type }] as const,
      ),
      ...['iso-8859-1', 'utf-16', '"windows-1252"']
        .map((charset) => ({ 'content-type': `application/json; charset=${charset}` }))
        .map((headers) => [BODY, 415, 'invalid_content_type', /charset .*UTF-8/, headers] as const),
      [BODY, 415, 'invalid_content_type', /content-encoding/, { 'content-encoding': 'gzip' }],
      [Buffer.from(BODY.replace(HELLO, 'Grüezi'), 'latin1'), 400, 'invalid_json', /UTF-8/],
      [Buffer.from(BODY, 'utf16le'), 400, 'invalid_json', /JSON/],
      ...['', '[]', '"text"', 'null', '{', BODY.slice(0, -1)].map(
        (body) => [body, 400, 'invalid_json', /JSON/] as const,
      ),
      [JSON.stringify({ input: 'x'.repeat(300_000) }), 413, 'request_too_large', /larger than 262144 bytes/],
    ];
    for (const [body, status, code, message, headers] of refused) {
      const { error, ...answer } = await send(origin, { body, headers: { ...headers } });
      t.strictSame([answer.status, error.code], [status, code], `${body} ${JSON.stringify(headers)}`);
      t.match(error.message, message);
      t.match(error.message, /(Nothing was bought|You were not charged)\.$/);
      t.notMatch(error.message, /not charged.*bought/);
    }
    const ends = calls.map(({ end }) => end);
    t.strictSame(
      ends,
      refused.map(() => 'refused'),
    );
  });

  await t.test('the bridge listens on loopback only', async () => {
    const outside = findOutsideAddress();
    if (!outside) return;
    const socket = connect(Number(port), outside.address);
    await new Promise<void>((resolve, reject) => {
      socket.once('error', () => resolve()).once('connect', () => reject(new Error('It answers outside.')));
    });
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

  t.strictSame([await balance(), upstream.requests.length], [1_000_000n, asked]);
});

test('a charset of UTF-8, a byte order mark, and speed 1 are the same purchase', async (t) => {
  const { origin, upstream, calls } = await openBridge(t, { gateway });
  for (const [type, body] of [
    ['application/json; charset=utf-8', BODY],
    ['APPLICATION/JSON;charset="UTF-8"', BODY],
    ['application/json', `\ufeff${BODY}`],
    ['application/json', JSON.stringify({ ...ORDER, input: HELLO, speed: 1 })],
    ['application/json', JSON.stringify({ ...ORDER, input: HELLO, speed: 1.25 })],
  ] as const) {
    t.equal((await send(origin, { headers: { 'content-type': type }, body })).status, 200, type);
  }
  const isRepeateds = calls.map(({ isRepeated }) => isRepeated);
  t.strictSame(isRepeateds, [false, true, true, true, false]);
  const told = upstream.requests.slice(-2).map(({ body }) => [body?.input, body?.speed ?? 1]);
  t.strictSame(told, [
    [HELLO, 1],
    [HELLO, 1.25],
  ]);
});

test('with a token set, requests without it are unauthorized', async (t) => {
  const { origin } = await openBridge(t, { gateway, bridge: { token: 'sesame' } });
  const get = (authorization?: string) =>
    send(origin, { method: 'GET', path: '/v1/models', headers: authorization === undefined ? {} : { authorization } });
  for (const wrong of [undefined, 'Bearer', 'Bearer sesam', 'Bearer sesame2', 'Basic sesame', 'sesame']) {
    const { status, error } = await get(wrong);
    assert.deepEqual([status, error.code], [401, 'invalid_api_key'], wrong);
  }
  t.strictSame([(await get('Bearer sesame')).status, (await get('bearer sesame')).status], [200, 200]);
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

test('a voice or model matches in any case, with _ or -, with or without provider', async (t) => {
  const spellings = 'acme_en-us-echo acme-en-us-echo ACME_EN_US_ECHO en-us-echo en_us_echo En-US_Echo'.split(' ');
  for (const asked of spellings) t.equal(voice(asked), 'acme_en-us-echo', asked);
  t.equal(voice('german', SLUGS, { voice: 'DE_Anna' }), 'acme_de-anna', 'a fallback too');
  for (const asked of ['acme/tts-1-hd', 'ACME/TTS_1_HD', 'tts-1-hd', 'TTS_1_HD'])
    t.equal(resolve(catalog(SLUGS), { model: asked, voice: undefined }, {}).model.id, 'acme/tts-1-hd', asked);
});

test('an OpenAI voice name selects the voice that ends in it', async (t) => {
  for (const [asked, expected] of [
    ['nova', 'acme_en-nova'],
    ['NOVA', 'acme_en-nova'],
    ['alloy', 'acme_en-alloy'],
    ['echo', 'acme_en-us-echo'],
  ] as const) {
    t.equal(voice(asked), expected);
    t.equal(voice(asked, SLUGS, { voice: 'de-anna' }), expected, 'rather than the fallback');
  }
  t.equal(voice('nova', ['en-nova', 'nova']), 'acme_nova', 'the whole name goes first');
  t.equal(voice('sage', ['massage', 'en-sage']), 'acme_en-sage', 'a part of a word is none');
});

test('an OpenAI voice name without a match gets a stable voice or the fallback', async (t) => {
  for (const asked of ['marin', 'onyx', 'Shimmer']) {
    t.equal(voice(asked), voice(asked.toLowerCase()), asked);
    t.ok(SLUGS.includes(voice(asked).replace('acme_', '')));
    t.equal(voice(asked, SLUGS, { voice: 'fr-nova' }), 'acme_fr-nova');
  }
  t.throws(() => voice('nobody'), /acme_de-anna, acme_en-nova/);
  t.throws(() => voice('anna'), /voice does not exist for/);
});

// What a service says reaches a program as the service's: short, printable, and last.

test('an error ends with at most 300 printable characters from the service', async (t) => {
  const { client, refusal } = talkativeService();
  const { url } = await bridgeOf(t, client);
  for (const status of [400, 413, 429]) {
    refusal.status = status;
    const { error } = (await (await askBridge(url, { model: 'm0', voice: 'v0' })).json()) as Refusal;
    t.match(error.message, SAID, `${status}: ${error.message}`);
    t.ok(error.message.length < 600 && error.code.length <= 100, `${error.code}: ${error.message}`);
  }
});

test('models and voices with invalid ids are neither listed nor bought', async (t) => {
  const { url } = await bridgeOf(t, talkativeService().client);
  for (const path of ['/models', '/audio/models', '/audio/voices']) {
    // biome-ignore lint/suspicious/noControlCharactersInRegex: they are what must not be there.
    t.notMatch(await (await fetch(`${url}${path}`)).text(), /[\u001b\u202e]|\\u001b|W{301}|дом/, path);
  }
  const { error } = (await (await askBridge(url, { model: 'm0', voice: 'none' })).json()) as Refusal;
  t.match(error.message, /Send one of v0, v1, .* and 50 more\. Nothing was bought\.$/);
});
