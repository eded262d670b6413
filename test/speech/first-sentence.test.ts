import { request } from 'node:http';
import { type Test, test } from 'tap';
import { audit } from '../../src/ledger/audit.ts';
import { startGateway } from '../support/gateway.ts';
import { longCatalog, longText, secondsOf } from '../support/long-texts.ts';
import { fundedWallet, startPrepaidGateway, TTS } from '../support/prepaid.ts';
import {
  body,
  ControlledStream,
  mp3,
  silentMp3,
  startStubUpstream,
  testUpstream,
  wav,
} from '../support/stub-upstream.ts';
import { toneMp3 } from '../support/tone.ts';
import { until } from '../support/until.ts';

const FUNDS = 5_000_000n;
const RATE = 18n;
const LIMIT = 4_096;
const TEXT = longText(4_000);
const FIRST = 'This is sentence number 1 of a long book.';
const WITHOUT_STREAM = [{ name: 'default', streams: false }];

/** A card caller of an upstream that answers only once all is spoken. */
async function start(t: Test) {
  const upstream = await testUpstream(t);
  const catalog = await longCatalog(t, LIMIT, { upstreams: WITHOUT_STREAM });
  const gateway = await startGateway(t, { SPEECH_BASE_URL: upstream.url, CATALOG_FILE: catalog });
  const account = await gateway.fund(500);
  const headers = { 'x-credit-account': account };
  return {
    ...{ upstream, gateway, account, headers },
    ask: (text: string) => gateway.call('/tts', { method: 'POST', json: { text }, headers }),
    inputs: () => upstream.requests.map(({ body }) => String(body?.input)),
    hasFunds: async (funds: bigint) => until(async () => (await gateway.balance(account)) === funds),
  };
}

test('a caller hears the first sentence before any further text is spoken', async (t) => {
  const { upstream, gateway, headers, inputs, hasFunds } = await start(t);
  const [first, rest] = [silentMp3(2_000), new ControlledStream()];
  upstream.mode = (request, response) => {
    const mode = [body(first), rest.mode][upstream.requests.length - 1] ?? mp3(10_000);
    mode(request, response);
  };
  const outgoing = request(`${gateway.url}/tts`, {
    method: 'POST',
    headers: { ...headers, 'content-type': 'application/json' },
  });
  outgoing.end(JSON.stringify({ text: TEXT }));
  const received: Buffer[] = [];
  const ended = new Promise((resolve) => {
    outgoing.on('response', (response) => response.on('data', (chunk) => received.push(chunk)).on('end', resolve));
  });
  await until(async () => Buffer.concat(received).length > first.length / 2);
  t.equal(inputs()[0], FIRST);
  t.ok(inputs().length <= 2, 'the rest is not spoken yet');
  await rest.opened;
  await rest.write(silentMp3(4_000));
  rest.end();
  await ended;
  t.equal(inputs().join(' '), TEXT);
  t.ok(secondsOf(Buffer.concat(received)) > 6);
  await hasFunds(FUNDS - 4_000n * RATE);
  t.strictSame(await audit(gateway.db), []);
});

test('the parts are joined to one MP3, each at most twice as long as the text before', async (t) => {
  const { upstream, ask, inputs } = await start(t);
  const tone = await toneMp3(440, 24_000, 2);
  upstream.mode = body(tone);
  const { bytes } = await ask(TEXT);
  const seconds = inputs().length * secondsOf(tone);
  t.ok(Math.abs(secondsOf(bytes) - seconds) < seconds / 100);
  let before = FIRST.length;
  for (const { length } of inputs().slice(1)) {
    t.ok(length <= 2 * (before + 1));
    before += length + 1;
  }
  t.ok(inputs().length > 3 && inputs().length <= 6, `${inputs().length} requests`);
});

test('an upstream without MP3 speaks the whole text after the first sentence', async (t) => {
  const { upstream, ask, inputs, hasFunds } = await start(t);
  upstream.mode = wav();
  const reply = await ask(TEXT);
  t.equal(reply.headers.get('content-type'), 'audio/wav');
  t.strictSame(inputs(), [FIRST, TEXT]);
  await hasFunds(FUNDS - 4_000n * RATE);
});

test('audio that is sent as a whole is spoken as a whole', async (t) => {
  const gateway = await startPrepaidGateway(t, {
    CATALOG_FILE: await longCatalog(t, LIMIT, { upstreams: WITHOUT_STREAM }),
  });
  const { sign } = await fundedWallet(gateway, FUNDS);
  const reply = await gateway.call(TTS, await sign(TTS, { method: 'POST', json: { text: TEXT } }));
  t.equal(reply.status, 200);
  t.strictSame(
    gateway.upstream.requests.map(({ body }) => body?.input),
    [TEXT],
  );
});

test('only the first sentence is given up for the next upstream after silencePercent', async (t) => {
  const [slow, next] = [await testUpstream(t), await startStubUpstream()];
  t.teardown(() => next.close());
  const servers = [{ name: 'next', baseUrl: next.url }];
  const catalog = await longCatalog(t, LIMIT, { servers, upstreams: [...WITHOUT_STREAM, { name: 'next' }] });
  const env = { SPEECH_BASE_URL: slow.url, CATALOG_FILE: catalog, SPEECH_TIMEOUT_MS: '1000' };
  const gateway = await startGateway(t, env);
  const headers = { 'x-credit-account': await gateway.fund(500) };
  const ask = () => gateway.call('/tts', { method: 'POST', json: { text: `${FIRST} And no more.` }, headers });
  const lateMs = 600;
  slow.mode = (request, response) => {
    if (request.body?.input === FIRST) mp3()(request, response);
    else setTimeout(() => mp3()(request, response), lateMs);
  };
  t.equal((await ask()).status, 200);
  t.equal(next.requests.length, 0);
  slow.mode = (request, response) => setTimeout(() => mp3()(request, response), lateMs);
  t.equal((await ask()).status, 200);
  t.equal(next.requests.length, 1);
});
