import assert from 'node:assert/strict';
import { t, test } from 'tap';
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts';
import {
  type Budget,
  cardCredits,
  directX402,
  OverCapError,
  type PaymentWay,
  type PendingPurchase,
  ServiceError,
  Speechgate,
} from '../../src/client/index.ts';
import { budgetPath, openBudget } from '../budget/support.ts';
import { errorOf, pinsOf, prepaidCaller, recordingBudget } from '../support/client.ts';
import { type Lie, startLyingServer } from '../support/lying-server.ts';
import { startPrepaidGateway } from '../support/prepaid.ts';

const HELLO = { text: 'Hello world' };
const PRICE = 198n;
const lying = await startLyingServer(t);
const gateway = await startPrepaidGateway(t, { BASE_URL: lying.url });
lying.target = gateway.url;

/** A wallet's direct payments, whose signatures end when that is said. */
function endingDirect() {
  const way = directX402(privateKeyToAccount(generatePrivateKey()));
  let hasEnded = false;
  const pay: PaymentWay = {
    ...way,
    offer: async (...call) => {
      const { sign, ...offer } = await way.offer(...call);
      const signEnding = async () => {
        const { expiresAt, ...pending } = await sign();
        return Object.defineProperty(pending, 'expiresAt', {
          get: () => (hasEnded ? (expiresAt as number) - 1000 : expiresAt),
        }) as typeof pending & { expiresAt: number };
      };
      return { ...offer, sign: signEnding };
    },
  };
  return {
    pay,
    end: () => {
      hasEnded = true;
    },
  };
}

const NOT_CHARGED = { payment: { state: 'not_charged' } };

/** Answers what is paid otherwise. */
const paid =
  (status: number, code: string): Lie =>
  (truth, path, { 'payment-signature': payment }) => {
    if (path !== '/x402/tts' || payment === undefined) return;
    Object.assign(truth, { status, json: { error: { code, message: 'no', details: NOT_CHARGED } } });
    truth.headers.delete('payment-required');
  };

const REFUSALS = [
  [400, 'INVALID_VOICE'],
  [401, 'UNAUTHORIZED'],
  [402, 'PAYMENT_REQUIRED'],
  [404, 'NOT_FOUND'],
  [409, 'PAYMENT_IDENTIFIER_CONFLICT'],
  [429, 'RATE_LIMITED'],
  [502, 'TTS_PROVIDER_ERROR'],
] as const;

for (const [status, code] of REFUSALS) {
  test(`a direct payment that is refused by ${status} stays set aside until its signature has ended`, async () => {
    const { pay, end } = endingDirect();
    const client = new Speechgate({
      baseUrl: lying.url,
      trust: pinsOf(gateway),
      pay,
      maxTotalMicroUsd: (3n * PRICE) / 2n,
    });
    lying.lie = paid(status, code);
    assert.ok((await errorOf(client.speak(HELLO))) instanceof ServiceError);
    lying.lie = undefined;
    assert.equal((await errorOf(client.speak(HELLO))).scope, 'client');
    end();
    lying.lie = paid(402, 'PAYMENT_REQUIRED');
    assert.equal((await errorOf(client.speak(HELLO))).scope, 'unconfirmed');
  });
}

/** Charges truly, and says that it has not. */
const deny: Lie = (truth, path, { 'x-x402-signature': signature }) => {
  if (path !== '/x402/tts' || signature === undefined) return;
  Object.assign(truth, {
    status: 503,
    json: { error: { code: 'TTS_PROVIDER_ERROR', message: 'no', details: NOT_CHARGED } },
  });
  truth.headers.set('content-type', 'application/json');
};

test('prepaid: a service that denies its charges takes no more than the cap while the signatures last', async () => {
  const { client, balance } = await prepaidCaller(gateway, { maxTotalMicroUsd: 5n * PRICE, patienceMs: 2000 });
  lying.lie = deny;
  for (let call = 0; call < 10; call += 1) await errorOf(client.speak(HELLO));
  lying.lie = undefined;
  assert.equal((await errorOf(client.speak(HELLO))).scope, 'client');
  assert.equal(await balance(), 1_000_000n - 5n * PRICE);
});

test('prepaid: a denied charge counts in a second sum, which has the size of the cap, once its signature ended', async (t) => {
  let aheadMs = 0;
  const path = await budgetPath(t);
  const budget = await openBudget(t, path, { perDayMicroUsd: 5n * PRICE }, () => Date.now() + aheadMs);
  const { client, balance } = await prepaidCaller(gateway, { budget, patienceMs: 0 });
  lying.lie = deny;
  let taken = 0;
  for (; taken < 20; taken += 1) {
    const error = await errorOf(client.speak(HELLO));
    if (error instanceof OverCapError) {
      assert.equal(error.scope, 'unconfirmed');
      break;
    }
    aheadMs += 131_000;
  }
  lying.lie = undefined;
  assert.equal(taken, 5);
  assert.equal(await balance(), 1_000_000n - 5n * PRICE);
  const { spentMicroUsd, unconfirmedTodayMicroUsd } = await budget.read();
  assert.deepEqual([spentMicroUsd, unconfirmedTodayMicroUsd], [0n, 5n * PRICE]);
  await budget.close();
  const reopened = await openBudget(t, path, { perDayMicroUsd: 5n * PRICE }, () => Date.now() + aheadMs);
  assert.equal((await reopened.read()).unconfirmedTodayMicroUsd, 5n * PRICE);
});

test('a signature stays set aside by the clock of the service too, where the own one is ahead', async (t) => {
  const path = await budgetPath(t);
  let aheadMs = 0;
  const budget = await openBudget(t, path, { totalMicroUsd: 2n * PRICE }, () => Date.now() + aheadMs);
  const { client } = await prepaidCaller(gateway, { budget, patienceMs: 0 });
  lying.lie = (truth, asked, headers) => {
    deny(truth, asked, headers);
    truth.headers.set('date', new Date(Date.now() - 3_600_000).toUTCString());
  };
  await errorOf(client.speak(HELLO));
  lying.lie = undefined;
  aheadMs = 600_000;
  assert.equal((await budget.read()).reservedMicroUsd, PRICE);
  aheadMs = 3_800_000;
  assert.equal((await budget.read()).reservedMicroUsd, 0n);
});

test('what was never sent is free at once', async (t) => {
  const budget = await openBudget(t, await budgetPath(t), { totalMicroUsd: PRICE });
  const stop = new AbortController();
  const leaving: Budget = {
    reserve: async (purchase) => {
      const reservation = await budget.reserve(purchase);
      const record = async (pending: PendingPurchase) => {
        await reservation.record(pending);
        stop.abort();
      };
      return { ...reservation, record };
    },
  };
  const { client } = await prepaidCaller(gateway, { budget: leaving });
  await errorOf(client.speak(HELLO, { signal: stop.signal }));
  const { reservedMicroUsd, unconfirmedMicroUsd } = await budget.read();
  assert.deepEqual([reservedMicroUsd, unconfirmedMicroUsd], [0n, 0n]);
});

for (const cap of ['a client', 'a budget file'] as const) {
  test(`card: what the balance falls by counts, whatever the price list and the receipt say: ${cap}`, async (t) => {
    const account = await gateway.fund(500);
    const pay = cardCredits(account);
    const path = await budgetPath(t);
    const limits = { totalMicroUsd: 3n * PRICE };
    const capped =
      cap === 'a client' ? { maxTotalMicroUsd: 3n * PRICE } : { budget: await openBudget(t, path, limits) };
    // The catalog says that speech costs nothing, the gateway is told of no maximum, and the receipt says nothing either.
    const send: typeof fetch = (request, init) => {
      const { headers } = request as Request;
      headers.delete('x-credit-max-amount');
      return fetch(request, init);
    };
    const client = new Speechgate({ baseUrl: lying.url, pay, fetch: send, ...capped });
    lying.lie = (truth, asked) => {
      if (asked === '/tts/models') for (const { pricing } of truth.json.models) pricing.ratePerCharUsd = 0;
      if (asked === '/tts') truth.headers.set('x-credit-charged', '0');
    };
    let bought = 0;
    for (; bought < 10; bought += 1) {
      const end = await client.speak({ ...HELLO, voice: 'provider-a_alloy' }).then(
        (speech) => speech.bytes(),
        (error) => error,
      );
      if (end instanceof OverCapError) break;
    }
    lying.lie = undefined;
    // Nothing is known before the first balance; from then on every fall counts.
    assert.ok(bought <= 5, String(bought));
  });
}

test('what the service tells of a charge counts in full where it is no amount that was set aside', async () => {
  for (const charged of ['-1', '199', '99999999999']) {
    lying.lie = undefined;
    const { budget, told } = recordingBudget();
    const { client } = await prepaidCaller(gateway, { budget });
    lying.lie = (truth, path) => {
      if (path !== '/x402/tts') return;
      const details = { payment: { state: 'charged', amountMicroUsd: Number(charged) } };
      Object.assign(truth, {
        status: 409,
        json: { error: { code: 'PREPAID_NONCE_REPLAYED', message: 'no', details } },
      });
      truth.headers.set('content-type', 'application/json');
    };
    await errorOf(client.speak(HELLO));
    assert.equal(told.at(-1), `settle ${PRICE}`);
  }
});
