/** The small client of the package's entry `.`, which pays from card credit only. */
import assert from 'node:assert/strict';
import { t, test } from 'tap';
import {
  AudioLostError,
  cardCredits,
  InvalidRequestError,
  OutcomeUnknownError,
  OverCapError,
  PaymentRequiredError,
  PriceChangedError,
  ServiceUnavailableError,
  Speechgate,
  type SpeechgateOptions,
  UnreachableError,
} from '../../../src/callers/client/card.ts';
import { Speechgate as FullClient, cardCredits as fullCardCredits } from '../../../src/callers/client/index.ts';
import { errorOf, ONE_MODEL, recordingBudget, startCardGateway } from '../../support/client.ts';
import { silentMp3 } from '../../support/silent-audio.ts';
import { ControlledStream, mp3, openAiError } from '../../support/stub-upstream.ts';
import { PRICE } from '../../support/x402.ts';

const gateway = await startCardGateway(t);
const { upstream, url: baseUrl } = gateway;
const HELLO = { text: 'Hello world' };
const AUDIO = new Uint8Array(silentMp3(1000));

async function openClient(options: Partial<SpeechgateOptions> = {}) {
  const account = await gateway.fund(500);
  const client = new Speechgate({ baseUrl, pay: cardCredits(account), ...options });
  return { client, balance: () => gateway.balance(account) };
}

/** A service whose answers are given, but for its catalog. */
const answering = (answer: (request: Request) => Response | Promise<Response>) =>
  new Speechgate({
    baseUrl: 'https://speech.example',
    pay: cardCredits('a'),
    timeoutMs: 1_000,
    fetch: async (input) => {
      const request = input as Request;
      return request.url.endsWith('/tts/models') ? Response.json(ONE_MODEL) : answer(request);
    },
  });

/** Both clients pay from card credit alike. */
const CLIENTS = {
  small: (account: string, options: Limits) => new Speechgate({ baseUrl, pay: cardCredits(account), ...options }),
  full: (account: string, options: Limits) => new FullClient({ baseUrl, pay: fullCardCredits(account), ...options }),
};
type Limits = Pick<SpeechgateOptions, 'budget' | 'maxPerRequestMicroUsd' | 'maxTotalMicroUsd'>;

for (const [client, open] of Object.entries(CLIENTS)) {
  const openBuyer = async (options: Limits = {}) => {
    const account = await gateway.fund(500);
    return { account, client: open(account, options), balance: () => gateway.balance(account) };
  };

  test(`${client}: speech streams, with a receipt and the balance`, async (t) => {
    const { account, client } = await openBuyer();
    const drip = new ControlledStream();
    upstream.mode = drip.mode;
    const speaking = client.speak({ text: ' Hello world\n' });
    await drip.opened;
    await drip.write(AUDIO.subarray(0, 4_000));
    const speech = await speaking;
    await drip.write(AUDIO.subarray(4_000));
    drip.end();
    upstream.mode = mp3();
    t.strictSame(await speech.bytes(), AUDIO);
    const { traceId, ...receipt } = speech.receipt;
    t.match(traceId, /^[0-9a-f-]{36}$/);
    t.strictSame(receipt, {
      flow: 'card',
      chargedMicroUsd: PRICE,
      balanceMicroUsd: 5_000_000n - PRICE,
      identifier: null,
      transaction: null,
      isReplay: false,
    });
    t.strictSame([(await client.balance()).balanceMicroUsd, speech.contentType], [5_000_000n - PRICE, 'audio/mpeg']);
    t.equal(client.topUpLink({ amountCents: 700, account }), `${baseUrl}/top-up?amount=700&account=${account}`);
    t.ok((await client.voices()).voices.length > 0);
  });

  test(`${client}: a price over a cap is not sent, and failed requests release their share`, async (t) => {
    const { client } = await openBuyer({ maxPerRequestMicroUsd: 300n, maxTotalMicroUsd: PRICE });
    const scopeOf = async (text: string, options = {}) => {
      const error = await errorOf(client.speak({ text }, options));
      assert.ok(error instanceof OverCapError, String(error));
      return error.scope;
    };
    const asked = upstream.requests.length;
    t.equal(await scopeOf('x'.repeat(17)), 'call');
    t.equal(await scopeOf(HELLO.text, { maxMicroUsd: PRICE - 1n }), 'call');
    t.ok((await errorOf(client.speak({ ...HELLO, voice: 'provider-a_none' }))) instanceof InvalidRequestError);
    t.equal(upstream.requests.length, asked);
    await client.speak(HELLO);
    t.equal(await scopeOf(HELLO.text), 'client');
  });

  test(`${client}: a budget reserves, records before the request is sent, then settles`, async (t) => {
    const { budget, told } = recordingBudget();
    const { client } = await openBuyer({ budget });
    await client.speak(HELLO);
    await errorOf(client.speak({ ...HELLO, voice: 'provider-a_none' }));
    const open = [`reserve card ${PRICE}`, 'record speech'];
    t.strictSame(told, [...open, `settle ${PRICE}`, ...open, 'settle 0']);
    const unsent = await openBuyer({ budget: recordingBudget('record').budget, maxTotalMicroUsd: PRICE });
    t.match((await errorOf(unsent.client.speak(HELLO))).message, /no record/);
    t.equal(await unsent.balance(), 5_000_000n);
  });
}

test('failed speech is retried, and charged once', async (t) => {
  for (const durable of [false, true]) {
    const { client, balance } = await openClient();
    let failures = durable ? 0 : 1;
    upstream.mode = (request, response) => {
      failures -= 1;
      (failures >= 0 ? openAiError(500) : mp3())(request, response);
    };
    t.strictSame(await (await client.speak(HELLO, { durable })).bytes(), AUDIO);
    t.equal(await balance(), 5_000_000n - PRICE);
  }
  upstream.mode = mp3();
});

test('errors have the class, code and way on of the service', async (t) => {
  const { client } = await openClient();
  const invalid = await errorOf(client.speak({ ...HELLO, speed: 3 }));
  t.strictSame([invalid.constructor, invalid.code], [InvalidRequestError, 'INVALID_SPEED']);
  const model = await errorOf(client.speak({ ...HELLO, model: 'none' }));
  t.strictSame([model.constructor, model.code], [InvalidRequestError, 'UNKNOWN_TTS_MODEL']);
  const unknown = { pay: cardCredits('3b241101-e2bb-4255-8caf-4136c566a962') };
  const unpaid = await errorOf((await openClient(unknown)).client.speak(HELLO));
  t.equal(unpaid.constructor, PaymentRequiredError);
  t.equal(unpaid.topUpUrl, `${baseUrl}/top-up?amount=500`);
  const noHeader = await openClient({ pay: cardCredits('ä') });
  t.match((await errorOf(noHeader.client.speak(HELLO))).message, /^accountId has .* You were not charged\.$/);
  const away = await openClient({ fetch: () => Promise.reject(new TypeError('fetch failed')) });
  t.equal((await errorOf(away.client.speak(HELLO))).constructor, UnreachableError);
  t.throws(() => new Speechgate({ baseUrl: 'http://speech.example' }), TypeError);
  await t.rejects(new Speechgate({ baseUrl }).speak(HELLO), /`pay` is missing/);
  // biome-ignore lint/suspicious/noExplicitAny: callers without types give anything.
  await t.rejects(client.speak(HELLO, { maxMicroUSD: 1n } as any), /no option maxMicroUSD/);
  // biome-ignore lint/suspicious/noExplicitAny: callers without types give anything.
  await t.rejects(client.speak(HELLO, { maxMicroUsd: 1 } as any), /maxMicroUsd must be a bigint/);
});

test('a price that has risen is not paid, and the next purchase reads it', async (t) => {
  let rate = 0.000018;
  const client = new Speechgate({
    baseUrl,
    pay: cardCredits(await gateway.fund(500)),
    fetch: async (...call) => {
      const response = await fetch(...call);
      if (!response.url.endsWith('/tts/models')) return response;
      const { models, ...catalog } = (await response.json()) as typeof ONE_MODEL;
      const listed = models.map((model) => ({ ...model, pricing: { ...model.pricing, ratePerCharUsd: rate } }));
      return Response.json({ ...catalog, models: listed });
    },
  });
  rate = 0.000017;
  t.equal((await errorOf(client.speak(HELLO))).constructor, PriceChangedError);
  rate = 0.000018;
  t.equal((await client.speak(HELLO)).receipt.chargedMicroUsd, PRICE);
});

test('a durable purchase with an unknown outcome is resumed, and settled once', async (t) => {
  const { budget, told } = recordingBudget();
  let isCut = true;
  const { client, balance } = await openClient({
    budget,
    timeoutMs: 0,
    fetch: async (...call) => {
      const response = await fetch(...call);
      if (isCut && response.status === 202) throw new TypeError('fetch failed');
      return response;
    },
  });
  const lost = await errorOf(client.speak(HELLO, { durable: true }));
  t.ok(lost instanceof OutcomeUnknownError);
  t.equal(told.at(-1), 'record speech');
  isCut = false;
  const pending = JSON.parse(JSON.stringify(lost.pending));
  const speech = await client.resume(pending);
  t.strictSame(await speech.bytes(), AUDIO);
  t.strictSame([speech.receipt.chargedMicroUsd, speech.receipt.isReplay], [PRICE, true]);
  t.strictSame([told.at(-1), await balance()], [`settle ${PRICE}`, 5_000_000n - PRICE]);
  for (const change of [{ baseUrl: 'https://b.example' }, { target: '/tts' }, { flow: 'direct' }])
    await t.rejects(client.resume({ ...pending, ...change }), { name: 'SpeechgateError' });
});

test('a job that failed was refunded; audio that has expired is charged', async (t) => {
  const job = (state: object, audio = 404) =>
    answering(({ url }) => {
      if (url.endsWith('async=true')) return Response.json({ jobId: 'j', traceId: 't' }, { status: 202 });
      if (!url.endsWith('/tts/jobs/j')) return Response.json({}, { status: audio });
      return Response.json({
        traceId: 't',
        links: { audio: 'https://other.example/tts/jobs/j/audio?sig=s' },
        ...state,
      });
    });
  const failed = await errorOf(job({ status: 'failed' }).speak(HELLO, { durable: true }));
  t.strictSame([failed.constructor, failed.payment.state], [ServiceUnavailableError, 'not_charged']);
  const expired = await errorOf(job({ status: 'completed' }).speak(HELLO, { durable: true }));
  t.strictSame([expired.constructor, expired.chargedMicroUsd], [AudioLostError, PRICE]);
  const unavailable = await errorOf(job({ status: 'completed' }, 503).speak(HELLO, { durable: true }));
  t.equal(unavailable.constructor, OutcomeUnknownError);
});

test('an abort gives its reason before a payment, and a lost answer after it', async (t) => {
  const { client } = await openClient();
  await assert.rejects(client.speak(HELLO, { signal: AbortSignal.abort('enough') }), (reason) => reason === 'enough');
  const stop = new AbortController();
  upstream.mode = () => stop.abort('enough');
  const lost = await errorOf(client.speak(HELLO, { signal: stop.signal }));
  upstream.mode = mp3();
  t.strictSame([lost.constructor, lost.cause], [AudioLostError, 'enough']);
});

test('an answer that is no audio may have been charged', async (t) => {
  const page = answering(() => new Response('<p>Hello</p>', { headers: { 'content-type': 'text/html' } }));
  const lost = await errorOf(page.speak(HELLO));
  t.strictSame([lost.constructor, lost.chargedMicroUsd], [AudioLostError, null]);
});
