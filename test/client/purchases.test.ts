import assert from 'node:assert/strict';
import { t, test } from 'tap';
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts';
import {
  AudioLostError,
  type Budget,
  cardCredits,
  InvalidRequestError,
  OutcomeUnknownError,
  OverCapError,
  PaymentRequiredError,
  type PendingPurchase,
  prepaid,
  ServiceUnavailableError,
  Speechgate,
  type SpeechgateOptions,
} from '../../src/client/index.ts';
import { countingWallet, pinsOf } from '../support/client.ts';
import { startCuttingProxy } from '../support/cutting-proxy.ts';
import { depositor, startPrepaidGateway, withCredential } from '../support/prepaid.ts';
import { Drip, mp3, openAiError, silentMp3, tooManyRequests } from '../support/stub-upstream.ts';

const HELLO = { text: 'Hello world' };
const PRICE = 198n;
const AUDIO = new Uint8Array(silentMp3(1000));
const proxy = await startCuttingProxy(t);
const gateway = await startPrepaidGateway(t, { BASE_URL: proxy.url }, { worker: true });
proxy.target = gateway.url;
const { upstream } = gateway;

/** A client that pays from a new wallet's balance, which counts what it signs. */
async function openPrepaid(options: Partial<SpeechgateOptions> = {}) {
  const payer = await depositor(gateway, 1_000_000n);
  const wallet = countingWallet(payer.wallet);
  const client = new Speechgate({ baseUrl: proxy.url, pay: prepaid(wallet), trust: pinsOf(gateway), ...options });
  return { client, wallet, balance: payer.balance };
}

/** A budget that writes down what it is told. */
function recordingBudget(fails?: 'reserve' | 'record' | 'settle') {
  const told: string[] = [];
  const tell = (what: 'reserve' | 'record' | 'settle', of: string) => {
    told.push(`${what} ${of}`);
    if (what === fails) throw new Error(`no ${what}`);
  };
  const budget: Budget = {
    reserve: async ({ flow, maxMicroUsd }) => {
      tell('reserve', `${flow} ${maxMicroUsd}`);
      return {
        record: async ({ kind }) => tell('record', kind),
        settle: async (charged) => tell('settle', String(charged)),
      };
    },
  };
  return { budget, told };
}

const errorOf = (promise: Promise<unknown>) =>
  promise.then(
    () => assert.fail('it was bought'),
    (error) => error,
  );

test('a price over a cap is refused before anything is signed, and caps are free again after a failure', async () => {
  const { client, wallet } = await openPrepaid({ maxPerRequestMicroUsd: 300n, maxTotalMicroUsd: 500n });
  const wide = await errorOf(client.speak(HELLO, { maxMicroUsd: 197n }));
  assert.ok(wide instanceof OverCapError);
  assert.deepEqual([wide.scope, wide.limitMicroUsd, wide.wantedMicroUsd], ['call', 197n, PRICE]);
  assert.equal((await errorOf(client.speak({ text: 'x'.repeat(17) }))).scope, 'call');
  assert.equal(wallet.signed, 0);

  upstream.mode = openAiError(500);
  for (let failed = 0; failed < 3; failed += 1) {
    assert.ok((await errorOf(client.speak({ ...HELLO, voice: 'provider-a_none' }))) instanceof InvalidRequestError);
  }
  upstream.mode = mp3();
  await client.speak(HELLO);
  await client.speak(HELLO);
  const signed = wallet.signed;
  const total = await errorOf(client.speak(HELLO));
  assert.deepEqual([total.scope, total.limitMicroUsd, total.leftMicroUsd], ['client', 500n, 500n - 2n * PRICE]);
  assert.equal(wallet.signed, signed);
});

test('the caps hold for purchases at the same time', async () => {
  const { client, balance } = await openPrepaid({ maxTotalMicroUsd: 3n * PRICE });
  const ends = await Promise.allSettled(Array.from({ length: 8 }, () => client.speak(HELLO)));
  assert.equal(ends.filter(({ status }) => status === 'fulfilled').length, 3);
  assert.equal(await balance(), 1_000_000n - 3n * PRICE);
});

test('a budget is asked before the signature, told before the request leaves, and told what it cost', async () => {
  const { budget, told } = recordingBudget();
  const { client } = await openPrepaid({ budget });
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
    const { client, wallet, balance } = await openPrepaid({ budget, maxTotalMicroUsd: PRICE });
    assert.match((await errorOf(client.speak(HELLO))).message, new RegExp(`no ${fails}`));
    assert.equal(wallet.signed, signatures);
    assert.equal(await balance(), 1_000_000n);
    if (fails === 'record') assert.equal(told.at(-1), 'settle 0');
  }
});

test('a budget that can not write down the end loses no speech', async () => {
  const { client } = await openPrepaid({ budget: recordingBudget('settle').budget });
  assert.deepEqual(await (await client.speak(HELLO)).bytes(), AUDIO);
});

test('errors are classes with what the service told', async () => {
  const account = await gateway.fund(500);
  const client = new Speechgate({ baseUrl: proxy.url, pay: cardCredits(account) });
  const invalid = await errorOf(client.speak({ ...HELLO, speed: 3 }));
  assert.ok(invalid instanceof InvalidRequestError);
  assert.deepEqual([invalid.status, invalid.code, invalid.details?.field], [400, 'INVALID_SPEED', 'speed']);
  assert.match(invalid.traceId, /^[0-9a-f-]{36}$/);
  assert.equal(invalid.name, 'InvalidRequestError');

  const poor = new Speechgate({ baseUrl: proxy.url, pay: cardCredits('3b241101-e2bb-4255-8caf-4136c566a962') });
  const unpaid = await errorOf(poor.speak(HELLO));
  assert.ok(unpaid instanceof PaymentRequiredError);
  assert.deepEqual([unpaid.topUpUrl, unpaid.missingMicroUsd], [`${proxy.url}/top-up?amount=500`, PRICE]);

  const pay = prepaid(privateKeyToAccount(generatePrivateKey()));
  const undeposited = new Speechgate({ baseUrl: proxy.url, pay, trust: pinsOf(gateway) });
  const short = await errorOf(undeposited.speak(HELLO));
  assert.ok(short instanceof PaymentRequiredError);
  assert.deepEqual([short.details?.reason, short.topUpUrl, short.missingMicroUsd], ['never_deposited', null, PRICE]);

  upstream.mode = tooManyRequests('30');
  const impatient = new Speechgate({ baseUrl: proxy.url, pay: cardCredits(account), patienceMs: 1000 });
  const busy = await errorOf(impatient.speak(HELLO));
  assert.ok(busy instanceof ServiceUnavailableError);
  assert.deepEqual([busy.code, busy.retryAfterSeconds], ['TTS_UNAVAILABLE', 30]);
  upstream.mode = mp3();
  assert.equal(await gateway.balance(account), 5_000_000n);
});

test('what the service could not speak is tried again, with a new signature, and charged once', async () => {
  const { client, balance, wallet } = await openPrepaid();
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

/** A purchase whose answers are lost until the client gives up, as another process finds it on its disk. */
async function lostPurchase(client: Speechgate, options = {}): Promise<PendingPurchase> {
  const broken = proxy.cutNext('x-x402-signature', { at: 'answer body', share: 0.5 });
  const error = await errorOf(client.speak(HELLO, options));
  await broken;
  assert.ok(error instanceof OutcomeUnknownError, String(error));
  return JSON.parse(JSON.stringify(error.pending));
}

test('an unknown end is told with what resumes it, in another process that has no wallet, and is paid once', async () => {
  const { budget, told } = recordingBudget();
  const { client, balance, wallet } = await openPrepaid({ patienceMs: 0, budget });
  const pending = await lostPurchase(client);
  assert.deepEqual(told.slice(-1), ['record speech'], 'it stays set aside');
  const speech = await new Speechgate({ baseUrl: proxy.url }).resume(pending);
  assert.deepEqual(await speech.bytes(), AUDIO);
  assert.deepEqual([speech.receipt.chargedMicroUsd, speech.receipt.isReplay], [PRICE, true]);
  await client.resume(pending);
  assert.equal(told.at(-1), `settle ${PRICE}`);
  assert.equal(await balance(), 1_000_000n - PRICE);
  assert.equal(wallet.signed, 1);
});

test('conclude tells what became of a purchase once it can not be bought any more', async () => {
  const { client, balance, wallet } = await openPrepaid({ patienceMs: 0 });
  const pending = await lostPurchase(client);
  assert.equal(await client.conclude(pending), null, 'it is still in time');
  const ended = { ...pending, expiresAt: Math.floor(Date.now() / 1000) - 60 };
  const conclusion = await client.conclude(ended);
  assert.equal(conclusion?.chargedMicroUsd, PRICE);
  assert.deepEqual(await conclusion?.speech?.bytes(), AUDIO);

  const expiry = BigInt(ended.expiresAt);
  const { headers } = await withCredential(
    wallet,
    gateway.domain,
    '/x402/tts',
    { method: 'POST', json: HELLO },
    { expiry },
  );
  const never = { ...ended, body: JSON.stringify(HELLO), headers: { ...ended.headers, ...(headers as object) } };
  assert.deepEqual(await client.conclude(never), { chargedMicroUsd: 0n, speech: null });
  assert.equal(await balance(), 1_000_000n - PRICE);
});

test('a streamed card request can not be resumed, and counts as charged', async () => {
  const account = await gateway.fund(500);
  const { budget, told } = recordingBudget();
  let recorded: PendingPurchase | undefined;
  const keeping: Budget = {
    reserve: async (purchase) => {
      const reservation = await budget.reserve(purchase);
      const record = async (pending: PendingPurchase) => {
        recorded = pending;
        await reservation.record(pending);
      };
      return { ...reservation, record };
    },
  };
  const client = new Speechgate({ baseUrl: proxy.url, pay: cardCredits(account), budget: keeping });
  const broken = proxy.cutNext('x-credit-account', { at: 'sent' });
  const lost = await errorOf(client.speak(HELLO));
  await broken;
  assert.ok(lost instanceof AudioLostError);
  assert.deepEqual([lost.chargedMicroUsd, lost.maxMicroUsd, told.at(-1)], [null, PRICE, `settle ${PRICE}`]);
  assert.ok((await errorOf(client.resume(recorded as PendingPurchase))) instanceof AudioLostError);
  assert.deepEqual(await client.conclude(recorded as PendingPurchase), { chargedMicroUsd: PRICE, speech: null });
});

test('a caller who aborts gets the reason before a payment, and after it what resumes that', async () => {
  const { client, wallet, balance } = await openPrepaid();
  const reason = new Error('enough');
  assert.equal(await errorOf(client.speak(HELLO, { signal: AbortSignal.abort(reason) })), reason);
  assert.equal(wallet.signed, 0);
  const stop = new AbortController();
  upstream.mode = (request, response) => {
    stop.abort(reason);
    mp3()(request, response);
  };
  const error = await errorOf(client.speak(HELLO, { signal: stop.signal }));
  upstream.mode = mp3();
  assert.ok(error instanceof OutcomeUnknownError);
  assert.equal(error.cause, reason);
  assert.deepEqual(await (await client.resume(error.pending)).bytes(), AUDIO);
  assert.equal(await balance(), 1_000_000n - PRICE);
});

test('a purchase from elsewhere, of another kind, or tampered with is not sent', async () => {
  const { client } = await openPrepaid({ patienceMs: 0 });
  const pending = await lostPurchase(client);
  for (const change of [
    { baseUrl: 'http://b.example' },
    { kind: 'deposit' },
    { target: '/feedback' },
    { method: 'GET' },
  ]) {
    await assert.rejects(client.resume({ ...pending, ...change } as PendingPurchase), /pending|purchase/);
  }
  await assert.rejects(client.resumeDeposit(pending), /pending deposit/);
});
