import assert from 'node:assert/strict';
import { t, test } from 'tap';
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts';
import {
  AudioLostError,
  type Budget,
  cardCredits,
  directX402,
  InvalidRequestError,
  OutcomeUnknownError,
  OverCapError,
  PaymentRequiredError,
  type PendingPurchase,
  prepaid,
  ServiceUnavailableError,
  Speechgate,
} from '../../../src/callers/client/index.ts';
import { testChain, wallet } from '../../support/chain.ts';
import { errorOf, listening, pinsOf, prepaidCaller, recordingBudget, startPaidGateway } from '../../support/client.ts';
import { startCuttingProxy } from '../../support/cutting-proxy.ts';
import { startPrepaidGateway, withCredential } from '../../support/prepaid.ts';
import { silentMp3 } from '../../support/silent-audio.ts';
import { mp3, openAiError, tooManyRequests } from '../../support/stub-upstream.ts';
import { until } from '../../support/until.ts';
import { PRICE, timesPaid } from '../../support/x402.ts';

const proxy = await startCuttingProxy(t);
const cutGateway = await startPrepaidGateway(t, { BASE_URL: proxy.url }, { worker: true });
const gateway = await startPrepaidGateway(t, await listening(), { worker: true });
const { chain, skip } = await testChain();
const ORDER = { text: ' Hello world\n' };
const AUDIO = new Uint8Array(silentMp3(1000));

test('direct: each request makes one payment on chain, with or without a quote', { skip }, async (t) => {
  const gateway = await startPaidGateway(t, chain);
  const { budget, told } = recordingBudget();
  const options = { baseUrl: gateway.url, trust: pinsOf(gateway), budget };
  const payer = await wallet(chain.client, 1_000_000n);
  for (const [paid, quoteFirst] of [false, true].entries()) {
    const speech = await new Speechgate({ ...options, pay: directX402(payer, { quoteFirst }) }).speak(ORDER);
    t.strictSame(await speech.bytes(), AUDIO);
    t.equal(speech.receipt.chargedMicroUsd, PRICE);
    t.match(speech.receipt.transaction ?? '', /^0x[0-9a-f]{64}$/);
    t.equal(await timesPaid(chain, payer), paid + 1);
  }
  told.length = 0;
  const poor = new Speechgate({ ...options, pay: directX402(await wallet(chain.client, PRICE - 1n)) });
  t.ok((await errorOf(poor.speak(ORDER))) instanceof PaymentRequiredError);
  t.strictSame(told, [`reserve direct ${PRICE}`, 'record speech'], 'R23: a refused payment may still settle');
});

const HELLO = { text: 'Hello world' };
const { upstream } = gateway;

test('a price over a cap is refused before anything is signed', async (t) => {
  const { client, wallet } = await prepaidCaller(gateway, { maxPerRequestMicroUsd: 300n, maxTotalMicroUsd: 500n });
  const wide = await errorOf(client.speak(HELLO, { maxMicroUsd: 197n }));
  t.ok(wide instanceof OverCapError);
  t.strictSame([wide.scope, wide.limitMicroUsd, wide.wantedMicroUsd], ['call', 197n, PRICE]);
  t.strictSame([(await errorOf(client.speak({ text: 'x'.repeat(17) }))).scope, wallet.signed], ['call', 0]);
  await client.speak(HELLO);
  await client.speak(HELLO);
  const signed = wallet.signed;
  const total = await errorOf(client.speak(HELLO));
  t.strictSame([total.scope, total.limitMicroUsd, total.leftMicroUsd], ['client', 500n, 500n - 2n * PRICE]);
  t.equal(wallet.signed, signed);
});

test('parallel purchases stay within the caps', async (t) => {
  const { client, balance } = await prepaidCaller(gateway, { maxTotalMicroUsd: 3n * PRICE });
  const ends = await Promise.allSettled(Array.from({ length: 8 }, () => client.speak(HELLO)));
  t.equal(ends.filter(({ status }) => status === 'fulfilled').length, 3);
  t.equal(await balance(), 1_000_000n - 3n * PRICE);
});

test('R1: a client reserves the price of UTF-16 code units, not of bytes', async (t) => {
  const { budget, told } = recordingBudget();
  const { client } = await prepaidCaller(gateway, { budget });
  const text = 'Grüße 😀';
  await client.speak({ text });
  t.strictSame([told[0], told.at(-1)], [`reserve prepaid ${text.length * 18}`, `settle ${text.length * 18}`]);
});

test('nothing is signed without a reservation or sent without a record', async (t) => {
  for (const fails of ['reserve', 'record'] as const) {
    const { budget, told } = recordingBudget(fails);
    const { client, wallet, balance } = await prepaidCaller(gateway, { budget, maxTotalMicroUsd: PRICE });
    t.match((await errorOf(client.speak(HELLO))).message, new RegExp(`no ${fails}`));
    t.equal(wallet.signed, fails === 'reserve' ? 0 : 1);
    t.equal(await balance(), 1_000_000n);
    if (fails === 'record') t.equal(told.at(-1), 'settle 0');
  }
});

test('a budget that fails to settle loses no audio', async (t) => {
  const { client } = await prepaidCaller(gateway, { budget: recordingBudget('settle').budget });
  t.strictSame(await (await client.speak(HELLO)).bytes(), AUDIO);
});

test('error classes carry the code and details of the service', async (t) => {
  const account = await gateway.fund(500);
  const client = new Speechgate({ baseUrl: gateway.url, pay: cardCredits(account) });
  const invalid = await errorOf(client.speak({ ...HELLO, speed: 3 }));
  t.ok(invalid instanceof InvalidRequestError);
  t.strictSame([invalid.status, invalid.code, invalid.details?.field], [400, 'INVALID_SPEED', 'speed']);
  t.match(invalid.traceId, /^[0-9a-f-]{36}$/);
  const pay = prepaid(privateKeyToAccount(generatePrivateKey()));
  const short = await errorOf(new Speechgate({ baseUrl: gateway.url, pay, trust: pinsOf(gateway) }).speak(HELLO));
  t.ok(short instanceof PaymentRequiredError);
  t.strictSame([short.details?.reason, short.topUpUrl, short.missingMicroUsd], ['never_deposited', null, PRICE]);
  upstream.mode = tooManyRequests('30');
  const busy = await errorOf(
    new Speechgate({ baseUrl: gateway.url, pay: cardCredits(account), timeoutMs: 1000 }).speak(HELLO),
  );
  t.ok(busy instanceof ServiceUnavailableError);
  t.strictSame([busy.code, busy.retryAfterSeconds], ['TTS_UNAVAILABLE', 30]);
  upstream.mode = mp3();
  t.equal(await gateway.balance(account), 5_000_000n);
});

test('failed speech is retried with a new signature and charged once', async (t) => {
  const { client, balance, wallet } = await prepaidCaller(gateway);
  let failures = 1;
  upstream.mode = (request, response) => {
    failures -= 1;
    (failures >= 0 ? openAiError(500) : mp3())(request, response);
  };
  t.strictSame(await (await client.speak(HELLO)).bytes(), AUDIO);
  upstream.mode = mp3();
  t.strictSame([await balance(), wallet.signed], [1_000_000n - PRICE, 2]);
});

proxy.target = cutGateway.url;
const { upstream: cutUpstream } = cutGateway;

/** A purchase whose answers are lost until the client gives up, as another process finds it on its disk. */
async function lostPurchase(client: Speechgate, options = {}): Promise<PendingPurchase> {
  const broken = proxy.cutNext('x-x402-signature', { at: 'answer body', share: 0.5 });
  const error = await errorOf(client.speak(HELLO, options));
  await broken;
  assert.ok(error instanceof OutcomeUnknownError, String(error));
  return JSON.parse(JSON.stringify(error.pending));
}

test('another process without a wallet can resume an unknown outcome, paid once', async (t) => {
  const { budget, told } = recordingBudget();
  const { client, balance, wallet } = await prepaidCaller(cutGateway, { timeoutMs: 0, budget });
  const pending = await lostPurchase(client);
  t.strictSame(told.slice(-1), ['record speech'], 'it stays set aside');
  const speech = await new Speechgate({ baseUrl: proxy.url }).resume(pending);
  t.strictSame(await speech.bytes(), AUDIO);
  t.strictSame([speech.receipt.chargedMicroUsd, speech.receipt.isReplay], [PRICE, true]);
  await client.resume(pending);
  t.strictSame([told.at(-1), await balance(), wallet.signed], [`settle ${PRICE}`, 1_000_000n - PRICE, 1]);
});

test('resolveOutcome reports what became of an expired purchase', async (t) => {
  const { client, balance, wallet } = await prepaidCaller(cutGateway, { timeoutMs: 0 });
  const pending = await lostPurchase(client);
  t.equal(await client.resolveOutcome(pending), null, 'it is still in time');
  const ended = { ...pending, expiresAt: Math.floor(Date.now() / 1000) - 60 };
  let conclusion = await client.resolveOutcome(ended);
  await until(async () => {
    conclusion ??= await client.resolveOutcome(ended);
    return conclusion !== null;
  });
  t.equal(conclusion?.chargedMicroUsd, PRICE);
  t.strictSame(await conclusion?.speech?.bytes(), AUDIO);
  const expiry = BigInt(ended.expiresAt);
  const { headers } = await withCredential(
    wallet,
    cutGateway.domain,
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
  t.strictSame(await asking.resolveOutcome(never), { chargedMicroUsd: 0n, speech: null });
  t.equal(await balance(), 1_000_000n - PRICE);
});

test('a streamed card request cannot be resumed and counts as charged', async (t) => {
  const account = await cutGateway.fund(500);
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
  t.ok(lost instanceof AudioLostError);
  t.strictSame([lost.chargedMicroUsd, lost.maxMicroUsd, told.at(-1)], [null, PRICE, `settle ${PRICE}`]);
  t.ok((await errorOf(client.resume(recorded as PendingPurchase))) instanceof AudioLostError);
  t.strictSame(await client.resolveOutcome(recorded as PendingPurchase), { chargedMicroUsd: PRICE, speech: null });
});

test('an abort gives its reason before a payment, a resumable purchase after it', async (t) => {
  const { client, wallet, balance } = await prepaidCaller(cutGateway);
  const reason = new Error('enough');
  t.equal(await errorOf(client.speak(HELLO, { signal: AbortSignal.abort(reason) })), reason);
  t.equal(wallet.signed, 0);
  const stop = new AbortController();
  let asked = 0;
  cutUpstream.mode = (request, response) => {
    stop.abort(reason);
    // Not before it was asked again: then the first connection has ended.
    void until(() => asked > 1).then(() => mp3()(request, response));
  };
  const error = await errorOf(client.speak(HELLO, { signal: stop.signal }));
  t.ok(error instanceof OutcomeUnknownError);
  t.equal(error.cause, reason);
  const counting: typeof fetch = (...call) => {
    asked += 1;
    return fetch(...call);
  };
  const resumed = await new Speechgate({ baseUrl: proxy.url, fetch: counting }).resume(error.pending);
  cutUpstream.mode = mp3();
  t.strictSame(await resumed.bytes(), AUDIO);
  t.equal(await balance(), 1_000_000n - PRICE);
});

test('a purchase of another service or kind, or one tampered with, is not sent', async (t) => {
  const { client } = await prepaidCaller(cutGateway, { timeoutMs: 0 });
  const pending = await lostPurchase(client);
  for (const change of [
    { baseUrl: 'http://b.example' },
    { kind: 'deposit' },
    { target: '/feedback' },
    { method: 'GET' },
  ]) {
    await t.rejects(client.resume({ ...pending, ...change } as PendingPurchase), /pending|purchase/);
  }
  await t.rejects(client.resumeDeposit(pending), /is not a deposit\. Pass the `pending` of a deposit/);
});
