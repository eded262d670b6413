import assert from 'node:assert/strict';
import { t, test } from 'tap';
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts';
import {
  cardCredits,
  InvalidRequestError,
  OverCapError,
  PaymentRequiredError,
  prepaid,
  ServiceUnavailableError,
  Speechgate,
} from '../../src/client/index.ts';
import { errorOf, listening, pinsOf, prepaidCaller, recordingBudget } from '../support/client.ts';
import { startPrepaidGateway } from '../support/prepaid.ts';
import { Drip, mp3, openAiError, silentMp3, tooManyRequests } from '../support/stub-upstream.ts';

const HELLO = { text: 'Hello world' };
const PRICE = 198n;
const AUDIO = new Uint8Array(silentMp3(1000));
const gateway = await startPrepaidGateway(t, await listening(), { worker: true });
const { upstream } = gateway;

test('a price over a cap is refused before anything is signed', async () => {
  const { client, wallet } = await prepaidCaller(gateway, { maxPerRequestMicroUsd: 300n, maxTotalMicroUsd: 500n });
  const wide = await errorOf(client.speak(HELLO, { maxMicroUsd: 197n }));
  assert.ok(wide instanceof OverCapError);
  assert.deepEqual([wide.scope, wide.limitMicroUsd, wide.wantedMicroUsd], ['call', 197n, PRICE]);
  assert.equal((await errorOf(client.speak({ text: 'x'.repeat(17) }))).scope, 'call');
  assert.equal(wallet.signed, 0);

  await client.speak(HELLO);
  await client.speak(HELLO);
  const signed = wallet.signed;
  const total = await errorOf(client.speak(HELLO));
  assert.deepEqual([total.scope, total.limitMicroUsd, total.leftMicroUsd], ['client', 500n, 500n - 2n * PRICE]);
  assert.equal(wallet.signed, signed);
});

test('caps of a card are free again after a failure', async () => {
  const pay = cardCredits(await gateway.fund(500));
  const { baseUrl } = gateway.config;
  const client = new Speechgate({ baseUrl, pay, maxTotalMicroUsd: PRICE });
  for (let failed = 0; failed < 3; failed += 1) {
    assert.ok((await errorOf(client.speak({ ...HELLO, voice: 'provider-a_none' }))) instanceof InvalidRequestError);
  }
  await client.speak(HELLO);
});

test('the caps hold for purchases at the same time', async () => {
  const { client, balance } = await prepaidCaller(gateway, { maxTotalMicroUsd: 3n * PRICE });
  const ends = await Promise.allSettled(Array.from({ length: 8 }, () => client.speak(HELLO)));
  assert.equal(ends.filter(({ status }) => status === 'fulfilled').length, 3);
  assert.equal(await balance(), 1_000_000n - 3n * PRICE);
});

test('a budget is asked before the signature, told before the request leaves, and told what it cost', async () => {
  const { budget, told } = recordingBudget();
  const { client } = await prepaidCaller(gateway, { budget });
  await client.speak(HELLO);
  await errorOf(client.speak({ ...HELLO, voice: 'provider-a_none' }));
  const bought = [`reserve prepaid ${PRICE}`, 'record speech', `settle ${PRICE}`];
  assert.deepEqual(told, [...bought, `reserve prepaid ${PRICE}`, 'record speech', 'settle 0']);
});

test('nothing is signed that no budget sets aside, and nothing leaves that it can not record', async () => {
  for (const [fails, signatures] of [
    ['reserve', 0],
    ['record', 1],
  ] as const) {
    const { budget, told } = recordingBudget(fails);
    const { client, wallet, balance } = await prepaidCaller(gateway, { budget, maxTotalMicroUsd: PRICE });
    assert.match((await errorOf(client.speak(HELLO))).message, new RegExp(`no ${fails}`));
    assert.equal(wallet.signed, signatures);
    assert.equal(await balance(), 1_000_000n);
    if (fails === 'record') assert.equal(told.at(-1), 'settle 0');
  }
});

test('a budget that can not write down the end loses no speech', async () => {
  const { client } = await prepaidCaller(gateway, { budget: recordingBudget('settle').budget });
  assert.deepEqual(await (await client.speak(HELLO)).bytes(), AUDIO);
});

test('errors are classes with what the service told', async () => {
  const account = await gateway.fund(500);
  const client = new Speechgate({ baseUrl: gateway.url, pay: cardCredits(account) });
  const invalid = await errorOf(client.speak({ ...HELLO, speed: 3 }));
  assert.ok(invalid instanceof InvalidRequestError);
  assert.deepEqual([invalid.status, invalid.code, invalid.details?.field], [400, 'INVALID_SPEED', 'speed']);
  assert.match(invalid.traceId, /^[0-9a-f-]{36}$/);
  assert.equal(invalid.name, 'InvalidRequestError');

  const poor = new Speechgate({ baseUrl: gateway.url, pay: cardCredits('3b241101-e2bb-4255-8caf-4136c566a962') });
  const unpaid = await errorOf(poor.speak(HELLO));
  assert.ok(unpaid instanceof PaymentRequiredError);
  assert.deepEqual([unpaid.topUpUrl, unpaid.missingMicroUsd], [`${gateway.url}/top-up?amount=500`, PRICE]);

  const pay = prepaid(privateKeyToAccount(generatePrivateKey()));
  const undeposited = new Speechgate({ baseUrl: gateway.url, pay, trust: pinsOf(gateway) });
  const short = await errorOf(undeposited.speak(HELLO));
  assert.ok(short instanceof PaymentRequiredError);
  assert.deepEqual([short.details?.reason, short.topUpUrl, short.missingMicroUsd], ['never_deposited', null, PRICE]);

  upstream.mode = tooManyRequests('30');
  const impatient = new Speechgate({ baseUrl: gateway.url, pay: cardCredits(account), patienceMs: 1000 });
  const busy = await errorOf(impatient.speak(HELLO));
  assert.ok(busy instanceof ServiceUnavailableError);
  assert.deepEqual([busy.code, busy.retryAfterSeconds], ['TTS_UNAVAILABLE', 30]);
  upstream.mode = mp3();
  assert.equal(await gateway.balance(account), 5_000_000n);
});

test('what the service could not speak is tried again, with a new signature, and charged once', async () => {
  const { client, balance, wallet } = await prepaidCaller(gateway);
  let failures = 1;
  upstream.mode = (request, response) => {
    failures -= 1;
    (failures >= 0 ? openAiError(500) : mp3())(request, response);
  };
  assert.deepEqual(await (await client.speak(HELLO)).bytes(), AUDIO);
  upstream.mode = mp3();
  assert.equal(await balance(), 1_000_000n - PRICE);
  assert.equal(wallet.signed, 2);
});

test('a card request streams: the first bytes are here while the rest is still spoken', async () => {
  const drip = new Drip();
  upstream.mode = drip.mode;
  const client = new Speechgate({ baseUrl: gateway.url, pay: cardCredits(await gateway.fund(500)) });
  const speaking = client.speak(HELLO);
  await drip.opened;
  await drip.write(silentMp3(1000));
  const reader = (await speaking).audio.getReader();
  assert.ok(((await reader.read()).value?.length ?? 0) > 0);
  drip.end();
  while (!(await reader.read()).done);
  upstream.mode = mp3();
});
