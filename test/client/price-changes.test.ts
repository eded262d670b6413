/** Prices and models that change while a client runs (R65). */
import assert from 'node:assert/strict';
import { t, test } from 'tap';
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts';
import {
  cardCredits,
  directX402,
  InvalidRequestError,
  OverCapError,
  type PaymentWay,
  PriceChangedError,
  prepaid,
  Speechgate,
  type SpeechgateOptions,
} from '../../src/client/index.ts';
import { errorOf, listening, pinsOf, prepaidCaller, recordingBudget } from '../support/client.ts';
import { type Lie, signatureOf, startLyingServer } from '../support/lying-server.ts';
import { startPrepaidGateway } from '../support/prepaid.ts';

const HELLO = { text: 'Hello world' };
const PRICE = 198;
const lying = await startLyingServer(t);
const gateway = await startPrepaidGateway(t, { BASE_URL: lying.url }, { worker: true });
lying.target = gateway.url;
const account = await gateway.fund(500);
const signingKey = gateway.config.signingKeys?.find(({ status }) => status === 'current');

const open = (pay: PaymentWay, options: Partial<SpeechgateOptions> = {}) =>
  new Speechgate({ baseUrl: lying.url, pay, ...options });

/** The service's rates, as so many times what they are. */
const rates =
  (factor: number): Lie =>
  (truth, path) => {
    if (path === '/tts/models') for (const { pricing } of truth.json.models) pricing.ratePerCharUsd *= factor;
    if (path !== '/.well-known/x402-service-metadata' || !signingKey) return;
    const { payload } = truth.json;
    for (const model of payload.pricing.models) {
      model.ratePerCharacterUsd = (Number(model.ratePerCharacterUsd) * factor).toFixed(12);
    }
    payload.validity.issuedAt = new Date().toISOString();
    truth.json.signature = signatureOf(payload, signingKey);
  };

/** Refuses what allows less than the price. */
const judged =
  (priceMicroUsd: number, header: string, sent: string[] = []): Lie =>
  (truth, _path, { [header]: allowed }) => {
    if (allowed === undefined) return;
    sent.push(allowed);
    if (Number(allowed) >= priceMicroUsd) return truth.headers.set('x-credit-charged', String(priceMicroUsd));
    const details = { reason: 'over_max_amount', priceMicroUsd, payment: { state: 'not_charged' } };
    const error = { code: 'PAYMENT_REQUIRED', message: 'The price is above the maximum.', details };
    Object.assign(truth, {
      status: 402,
      json: { error },
      headers: new Headers({ 'content-type': 'application/json' }),
    });
  };

const all =
  (...lies: Lie[]): Lie =>
  (...truth) => {
    for (const lie of lies) lie(...truth);
  };

for (const durable of [false, true]) {
  for (const trust of [undefined, pinsOf(gateway)]) {
    test(`R65: a card request (durable: ${durable}, pinned: ${trust !== undefined}) never costs more than its caps`, async () => {
      const { budget, told } = recordingBudget();
      const options = { budget, maxPerRequestMicroUsd: 2_000n, ...(trust && { trust }) };
      const client = open(cardCredits(account), options);
      const sent: string[] = [];
      lying.lie = judged(PRICE, 'x-credit-max-amount', sent);
      assert.equal((await client.speak(HELLO, { durable })).receipt.chargedMicroUsd, 198n);

      lying.lie = all(rates(10), judged(10 * PRICE, 'x-credit-max-amount', sent));
      const risen = await client.speak(HELLO, { durable });
      assert.equal(risen.receipt.chargedMicroUsd, 1_980n);
      assert.deepEqual(told.slice(-4), ['settle 0', 'reserve card 1980', 'record speech', 'settle 1980']);

      lying.lie = all(rates(100), judged(100 * PRICE, 'x-credit-max-amount', sent));
      assert.ok((await errorOf(client.speak(HELLO, { durable }))) instanceof OverCapError);
      assert.equal(told.at(-1), 'settle 0');
      assert.deepEqual(sent, ['198', '198', '1980', '1980']);
    });
  }
}

test('R65: a receipt and the budget hold what was taken, where the price has fallen', async () => {
  const { budget, told } = recordingBudget();
  lying.lie = judged(150, 'x-credit-max-amount');
  const { receipt } = await open(cardCredits(account), { budget }).speak(HELLO);
  assert.deepEqual([receipt.chargedMicroUsd, told.at(-1)], [150n, 'settle 150']);
});

test('a price that stays above what the service publishes is told as one that rose, and is tried twice', async () => {
  const { client } = await prepaidCaller(gateway, { budget: recordingBudget().budget });
  for (const [flow, buyer, header] of [
    ['card', open(cardCredits(account)), 'x-credit-max-amount'],
    ['prepaid', client, 'x-x402-max-amount'],
  ] as const) {
    const sent: string[] = [];
    lying.lie = (truth, path, headers) => {
      if (path === '/tts' || path === '/x402/tts') judged(500, header, sent)(truth, path, headers);
    };
    const error = await errorOf(buyer.speak(HELLO));
    assert.ok(error instanceof PriceChangedError, `${flow}: ${error}`);
    assert.match(error.message, /price has risen to 500 micro-USD.* Nothing was charged/);
    assert.doesNotMatch(error.message, /[Dd]eposit/);
    assert.deepEqual(sent, ['198', '198'], flow);
  }
});

test('a direct payment whose offer is no longer made is signed anew once', async () => {
  let paid = 0;
  lying.lie = (truth, path, headers) => {
    if (path !== '/x402/tts' || headers['payment-signature'] === undefined) return;
    paid += 1;
    const details = { error: 'accepted_is_no_offer', payment: { state: 'not_charged' } };
    Object.assign(truth, { status: 402, json: { error: { code: 'PAYMENT_REQUIRED', message: 'No.', details } } });
  };
  const wallet = privateKeyToAccount(generatePrivateKey());
  const { budget, told } = recordingBudget();
  const client = open(directX402(wallet), { trust: pinsOf(gateway), budget });
  await errorOf(client.speak(HELLO));
  assert.equal(paid, 2);
  assert.ok(!told.some((line) => line.startsWith('settle')), 'both signatures stay set aside');
});

test('a model that was added or renamed is found; one that there is not is told as such', async (t) => {
  const own = await startPrepaidGateway(t, await listening());
  const payer = privateKeyToAccount(generatePrivateKey());
  lying.target = own.url;
  for (const [flow, pay, options] of [
    ['card', cardCredits(await own.fund(500)), { baseUrl: lying.url }],
    ['card, pinned', cardCredits(await own.fund(500)), { baseUrl: own.url, trust: pinsOf(own) }],
    ['prepaid', prepaid(payer), { baseUrl: own.url, trust: pinsOf(own) }],
    ['direct', directX402(payer), { baseUrl: own.url, trust: pinsOf(own) }],
  ] as const) {
    const error = await errorOf(open(pay, options).speak({ ...HELLO, model: 'provider-a/none' }));
    assert.ok(error instanceof InvalidRequestError, `${flow}: ${error}`);
    assert.deepEqual([error.code, error.details?.field], ['UNKNOWN_TTS_MODEL', 'model'], flow);
  }
  let isRenamed = true;
  lying.lie = (truth, path) => {
    if (path !== '/tts/models' || !isRenamed) return;
    truth.json.defaultModel = 'provider-a/former';
    truth.json.models = [{ ...truth.json.models[0], id: 'provider-a/former' }];
  };
  const client = open(cardCredits(await own.fund(500)));
  await client.models();
  isRenamed = false;
  assert.equal((await client.speak(HELLO)).receipt.chargedMicroUsd, 198n);
  lying.target = gateway.url;
});
