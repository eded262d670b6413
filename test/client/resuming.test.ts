import assert from 'node:assert/strict';
import { t, test } from 'tap';
import {
  AudioLostError,
  type Budget,
  cardCredits,
  OutcomeUnknownError,
  type PendingPurchase,
  Speechgate,
} from '../../src/client/index.ts';
import { errorOf, prepaidCaller, recordingBudget } from '../support/client.ts';
import { startCuttingProxy } from '../support/cutting-proxy.ts';
import { startPrepaidGateway, withCredential } from '../support/prepaid.ts';
import { mp3, silentMp3 } from '../support/stub-upstream.ts';
import { until } from '../support/until.ts';

const HELLO = { text: 'Hello world' };
const PRICE = 198n;
const AUDIO = new Uint8Array(silentMp3(1000));
const proxy = await startCuttingProxy(t);
const gateway = await startPrepaidGateway(t, { BASE_URL: proxy.url }, { worker: true });
proxy.target = gateway.url;
const { upstream } = gateway;

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
  const { client, balance, wallet } = await prepaidCaller(gateway, { patienceMs: 0, budget });
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
  const { client, balance, wallet } = await prepaidCaller(gateway, { patienceMs: 0 });
  const pending = await lostPurchase(client);
  assert.equal(await client.conclude(pending), null, 'it is still in time');
  const ended = { ...pending, expiresAt: Math.floor(Date.now() / 1000) - 60 };
  let conclusion = await client.conclude(ended);
  await until(async () => {
    conclusion ??= await client.conclude(ended);
    return conclusion !== null;
  });
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
  const looksUp: typeof fetch = async (...call) => {
    const { error } = (await (await fetch(...call)).json()) as { error: { details: object } };
    Object.assign(error.details, { payment: { state: 'not_charged' } });
    return Response.json({ error }, { status: 400 });
  };
  const asking = new Speechgate({ baseUrl: proxy.url, fetch: looksUp });
  assert.deepEqual(await asking.conclude(never), { chargedMicroUsd: 0n, speech: null });
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
  const broken = proxy.cutNext('x-credit-account', { at: 'answer head', share: 0 });
  const lost = await errorOf(client.speak(HELLO));
  await broken;
  assert.ok(lost instanceof AudioLostError);
  assert.deepEqual([lost.chargedMicroUsd, lost.maxMicroUsd, told.at(-1)], [null, PRICE, `settle ${PRICE}`]);
  assert.ok((await errorOf(client.resume(recorded as PendingPurchase))) instanceof AudioLostError);
  assert.deepEqual(await client.conclude(recorded as PendingPurchase), { chargedMicroUsd: PRICE, speech: null });
});

test('a caller who aborts gets the reason before a payment, and after it what resumes that', async () => {
  const { client, wallet, balance } = await prepaidCaller(gateway);
  const reason = new Error('enough');
  assert.equal(await errorOf(client.speak(HELLO, { signal: AbortSignal.abort(reason) })), reason);
  assert.equal(wallet.signed, 0);
  const stop = new AbortController();
  let asked = 0;
  upstream.mode = (request, response) => {
    stop.abort(reason);
    // Not before it was asked again: then the first connection has ended.
    void until(() => asked > 1).then(() => mp3()(request, response));
  };
  const error = await errorOf(client.speak(HELLO, { signal: stop.signal }));
  assert.ok(error instanceof OutcomeUnknownError);
  assert.equal(error.cause, reason);
  const counting: typeof fetch = (...call) => {
    asked += 1;
    return fetch(...call);
  };
  const resumed = await new Speechgate({ baseUrl: proxy.url, fetch: counting }).resume(error.pending);
  upstream.mode = mp3();
  assert.deepEqual(await resumed.bytes(), AUDIO);
  assert.equal(await balance(), 1_000_000n - PRICE);
});

test('after a lost answer no refusal of a repetition is taken for the end', async (t) => {
  for (const status of [401, 402, 404, 429, 503]) {
    await t.test(String(status), async () => {
      let sent = 0;
      const losing: typeof fetch = async (...call) => {
        const response = await fetch(...call);
        if (!(call[0] as Request).headers.has('x-x402-nonce')) return response;
        sent += 1;
        await response.arrayBuffer();
        if (sent === 1) throw new TypeError('the answer is lost');
        return Response.json({ error: { code: 'PAYMENT_REQUIRED', message: 'no', details: null } }, { status });
      };
      const { client, balance, wallet } = await prepaidCaller(gateway, { fetch: losing, patienceMs: 500 });
      const error = await errorOf(client.speak(HELLO));
      assert.ok(error instanceof OutcomeUnknownError, String(error));
      assert.ok(sent > 1);
      assert.deepEqual([wallet.signed, await balance()], [1, 1_000_000n - PRICE]);
    });
  }
});

test('a purchase from elsewhere, of another kind, or tampered with is not sent', async () => {
  const { client } = await prepaidCaller(gateway, { patienceMs: 0 });
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
