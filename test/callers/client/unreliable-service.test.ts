import { getEventListeners } from 'node:events';
import { inspect } from 'node:util';
import { t, test } from 'tap';
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts';
import {
  cardCredits,
  directX402,
  InvalidRequestError,
  OutcomeUnknownError,
  OverCapError,
  type PaymentWay,
  PriceChangedError,
  prepaid,
  Speechgate,
  type SpeechgateOptions,
  UnreachableError,
} from '../../../src/callers/client/index.ts';
import { freePort } from '../../../src/sandbox/free-port.ts';
import { errorOf, pinsOf, prepaidCaller, recordingBudget } from '../../support/client.ts';
import { startPrepaidGateway } from '../../support/prepaid.ts';
import { silentMp3 } from '../../support/silent-audio.ts';
import { signatureOf, startTamperingProxy, type Tamper } from '../../support/tampering-proxy.ts';

const proxy = await startTamperingProxy(t);
const gateway = await startPrepaidGateway(t, { BASE_URL: proxy.url }, { worker: true });
const account = await gateway.fund(500);
const HELLO = { text: 'Hello world' };
const AUDIO = new Uint8Array(silentMp3(1000));
proxy.target = gateway.url;

test('a purchase leaves no listeners on a long-lived signal', async (t) => {
  const { signal } = new AbortController();
  const { client } = await prepaidCaller(gateway);
  await client.speak(HELLO, { signal });
  t.equal(getEventListeners(signal, 'abort').length, 0);
});

test('audio shorter than its content-length is not taken for the whole', async (t) => {
  // Not every fetch checks the length.
  const shortened: typeof fetch = async (request, init) => {
    const response = await fetch(request, init);
    if (response.headers.get('content-type') !== 'audio/mpeg') return response;
    return new Response((await response.arrayBuffer()).slice(0, -1), response);
  };
  const { client } = await prepaidCaller(gateway, { fetch: shortened, timeoutMs: 0 });
  const error = await errorOf(client.speak(HELLO));
  t.ok(error instanceof OutcomeUnknownError, String(error));
  t.equal(error.cause.message, 'The connection closed before the end of the audio.');
});

test('job audio is fetched under another host name of the service too', async (t) => {
  const account = await gateway.fund(500);
  const baseUrl = proxy.url.replace('127.0.0.1', 'localhost');
  const client = new Speechgate({ baseUrl, pay: cardCredits(account), timeoutMs: 2000 });
  t.strictSame(await (await client.speak(HELLO, { durable: true })).bytes(), AUDIO);
});

test('a printed OutcomeUnknownError contains neither text nor credential', async (t) => {
  const { client } = await prepaidCaller(gateway, { timeoutMs: 0 });
  proxy.tamper = (proxied, path) => {
    if (path === '/x402/tts') Object.assign(proxied, { status: 502, json: 'a proxy' });
  };
  const error = await errorOf(client.speak(HELLO));
  proxy.tamper = undefined;
  t.ok(error instanceof OutcomeUnknownError, String(error));
  t.equal(error.pending.maxMicroUsd, '198');
  t.ok(!inspect(error).includes('x-x402-signature'));
});

test('a card request that was never sent is not charged', async (t) => {
  const account = await gateway.fund(500);
  const { budget, told } = recordingBudget();
  const closed = `http://127.0.0.1:${await freePort()}/tts`;
  const away: typeof fetch = (request, init) => {
    const { url } = request as Request;
    return fetch(url.endsWith('/tts') ? new Request(closed, request as Request) : request, init);
  };
  const client = new Speechgate({ baseUrl: proxy.url, pay: cardCredits(account), budget, fetch: away });
  t.ok((await errorOf(client.speak(HELLO))) instanceof UnreachableError);
  t.equal(told.at(-1), 'settle 0');
  const wrong = new Speechgate({ baseUrl: proxy.url, pay: cardCredits('a\nb'), budget });
  told.length = 0;
  t.match((await errorOf(wrong.speak(HELLO))).message, /accountId .* not charged/);
  t.strictSame(told, []);
});

// Prices and models that change while a client runs (R65).

const PRICE_MICRO_USD = 198;
const signingKey = gateway.config.signingKeys?.find(({ status }) => status === 'current');

const open = (pay: PaymentWay, options: Partial<SpeechgateOptions> = {}) =>
  new Speechgate({ baseUrl: proxy.url, pay, ...options });

/** The service's rates, as so many times what they are. */
const rates =
  (factor: number): Tamper =>
  (proxied, path) => {
    if (path === '/tts/models') for (const { pricing } of proxied.json.models) pricing.ratePerCharUsd *= factor;
    if (path !== '/.well-known/x402-service-metadata' || !signingKey) return;
    const { payload } = proxied.json;
    for (const model of payload.pricing.models)
      model.ratePerCharacterUsd = (Number(model.ratePerCharacterUsd) * factor).toFixed(12);
    payload.validity.issuedAt = new Date().toISOString();
    proxied.json.signature = signatureOf(payload, signingKey);
  };

/** Refuses what allows less than the price. */
const judged =
  (priceMicroUsd: number, header: string, sent: string[] = []): Tamper =>
  (proxied, _path, { [header]: allowed }) => {
    if (allowed === undefined) return;
    sent.push(allowed);
    if (Number(allowed) >= priceMicroUsd) return proxied.headers.set('x-credit-charged', String(priceMicroUsd));
    const details = { reason: 'over_max_amount', priceMicroUsd, payment: { state: 'not_charged' } };
    const error = { code: 'PAYMENT_REQUIRED', message: 'The price is above the maximum.', details };
    Object.assign(proxied, {
      status: 402,
      json: { error },
      headers: new Headers({ 'content-type': 'application/json' }),
    });
  };

const all =
  (...tampers: Tamper[]): Tamper =>
  (...proxied) => {
    for (const tamper of tampers) tamper(...proxied);
  };

test('R65: a card request stays within its caps, streamed and durable, pinned or not', async (t) => {
  for (const [durable, trust] of [
    [false, undefined],
    [true, undefined],
    [true, pinsOf(gateway)],
  ] as const) {
    const { budget, told } = recordingBudget();
    const options = { budget, maxPerRequestMicroUsd: 2_000n, ...(trust && { trust }) };
    const client = open(cardCredits(account), options);
    const sent: string[] = [];
    proxy.tamper = judged(PRICE_MICRO_USD, 'x-credit-max-amount', sent);
    t.equal((await client.speak(HELLO, { durable })).receipt.chargedMicroUsd, 198n);
    proxy.tamper = all(rates(10), judged(10 * PRICE_MICRO_USD, 'x-credit-max-amount', sent));
    t.equal((await client.speak(HELLO, { durable })).receipt.chargedMicroUsd, 1_980n);
    t.strictSame(told.slice(-4), ['settle 0', 'reserve card 1980', 'record speech', 'settle 1980']);
    proxy.tamper = all(rates(100), judged(100 * PRICE_MICRO_USD, 'x-credit-max-amount', sent));
    t.ok((await errorOf(client.speak(HELLO, { durable }))) instanceof OverCapError);
    t.equal(told.at(-1), 'settle 0');
    t.strictSame(sent, ['198', '198', '1980', '1980']);
  }
});

test('R65: receipt and budget state the amount charged after a price cut', async (t) => {
  const { budget, told } = recordingBudget();
  proxy.tamper = judged(150, 'x-credit-max-amount');
  const { receipt } = await open(cardCredits(account), { budget }).speak(HELLO);
  t.strictSame([receipt.chargedMicroUsd, told.at(-1)], [150n, 'settle 150']);
});

test('a price above the published one is retried once and then reported', async (t) => {
  const { client } = await prepaidCaller(gateway, { budget: recordingBudget().budget });
  for (const [flow, buyer, header] of [
    ['card', open(cardCredits(account)), 'x-credit-max-amount'],
    ['prepaid', client, 'x-x402-max-amount'],
  ] as const) {
    const sent: string[] = [];
    proxy.tamper = (proxied, path, headers) => {
      if (path === '/tts' || path === '/x402/tts') judged(500, header, sent)(proxied, path, headers);
    };
    const error = await errorOf(buyer.speak(HELLO));
    t.ok(error instanceof PriceChangedError, `${flow}: ${error}`);
    t.match(error.message, /price has risen to 0\.000500 USD.* Nothing was charged/);
    t.notMatch(error.message, /[Dd]eposit/);
    t.strictSame(sent, ['198', '198'], flow);
  }
});

test('a direct payment is signed again once when its offer is no longer made', async (t) => {
  let paid = 0;
  proxy.tamper = (proxied, path, headers) => {
    if (path !== '/x402/tts' || headers['payment-signature'] === undefined) return;
    paid += 1;
    const details = { error: 'accepted_is_no_offer', payment: { state: 'not_charged' } };
    Object.assign(proxied, { status: 402, json: { error: { code: 'PAYMENT_REQUIRED', message: 'No.', details } } });
  };
  const wallet = privateKeyToAccount(generatePrivateKey());
  const { budget, told } = recordingBudget();
  await errorOf(open(directX402(wallet), { trust: pinsOf(gateway), budget }).speak(HELLO));
  t.equal(paid, 2);
  t.ok(!told.some((line) => line.startsWith('settle')), 'both signatures stay set aside');
});

test('a renamed model is found, and an unknown one is UNKNOWN_TTS_MODEL', async (t) => {
  proxy.tamper = undefined;
  const payer = privateKeyToAccount(generatePrivateKey());
  const trust = pinsOf(gateway);
  for (const [flow, pay, options] of [
    ['card', cardCredits(account), {}],
    ['card, pinned', cardCredits(account), { trust }],
    ['prepaid', prepaid(payer), { trust }],
    ['direct', directX402(payer), { trust }],
  ] as const) {
    const error = await errorOf(open(pay, options).speak({ ...HELLO, model: 'provider-a/none' }));
    t.ok(error instanceof InvalidRequestError, `${flow}: ${error}`);
    t.strictSame([error.code, error.details?.field], ['UNKNOWN_TTS_MODEL', 'model'], flow);
  }
  proxy.tamper = (proxied, path) => {
    if (path !== '/tts/models') return;
    proxied.json.defaultModel = 'provider-a/former';
    proxied.json.models = [{ ...proxied.json.models[0], id: 'provider-a/former' }];
  };
  const client = open(cardCredits(account));
  await client.models();
  proxy.tamper = undefined;
  t.equal((await client.speak(HELLO)).receipt.chargedMicroUsd, 198n);
});

test('an error of a proxy is no answer of the service: the same purchase is sent again', async (t) => {
  for (const status of [502, 524]) {
    let lost = 0;
    proxy.tamper = (proxied, path) => {
      if (lost === 1 || !(path === '/tts?async=true' || (path === '/x402/tts' && proxied.status !== 402))) return;
      lost += 1;
      Object.assign(proxied, {
        status,
        json: '<h1>Bad Gateway</h1>',
        headers: new Headers({ 'content-type': 'text/html' }),
      });
    };
    const account = await gateway.fund(500);
    t.strictSame(await (await open(cardCredits(account)).speak(HELLO, { durable: true })).bytes(), AUDIO);
    t.strictSame([lost, await gateway.balance(account)], [1, 5_000_000n - 198n]);
    lost = 0;
    const { client, balance, wallet } = await prepaidCaller(gateway);
    t.strictSame(await (await client.speak(HELLO)).bytes(), AUDIO);
    t.strictSame([lost, wallet.signed, await balance()], [1, 1, 1_000_000n - 198n]);
  }
});
