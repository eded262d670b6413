/** What an error answer says about the money, in every flow (R64). */
import assert from 'node:assert/strict';
import { type Test, t, test } from 'tap';
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts';
import {
  AudioLostError,
  type Budget,
  cardCredits,
  directX402,
  OutcomeUnknownError,
  OverCapError,
  type PaymentWay,
  type PendingPurchase,
  prepaid,
  ServiceError,
  Speechgate,
  type SpeechgateOptions,
} from '../../../src/callers/client/index.ts';
import { errorOf, pinsOf, prepaidCaller, recordingBudget } from '../../support/client.ts';
import { startPrepaidGateway } from '../../support/prepaid.ts';
import { startTamperingProxy, type Tamper } from '../../support/tampering-proxy.ts';
import { budgetPath, openBudget } from '../budget/support.ts';

const HELLO = { text: 'Hello world' };
const PRICE = 198n;
const DAY_SECONDS = 86_400;
const proxy = await startTamperingProxy(t);
const gateway = await startPrepaidGateway(t, { BASE_URL: proxy.url });
proxy.target = gateway.url;
const wallet = privateKeyToAccount(generatePrivateKey());

interface Flow {
  readonly name: string;
  readonly pay: PaymentWay;
  /** The header of a request that pays. */
  readonly marker: string;
  buy(client: Speechgate): Promise<unknown>;
  resume(client: Speechgate, pending: PendingPurchase): Promise<unknown>;
}

const speech = {
  buy: (client: Speechgate) => client.speak(HELLO, { durable: true }),
  resume: (client: Speechgate, pending: PendingPurchase) => client.resume(pending),
};
const account = await gateway.fund(500);
const CARD: Flow = { name: 'card, durable', pay: cardCredits(account), marker: 'idempotency-key', ...speech };
const DIRECT: Flow = { name: 'direct', pay: directX402(wallet), marker: 'payment-signature', ...speech };
const PREPAID: Flow = { name: 'prepaid', pay: prepaid(wallet), marker: 'x-x402-signature', ...speech };
const DEPOSIT: Flow = {
  name: 'deposit',
  pay: prepaid(wallet),
  marker: 'payment-signature',
  buy: (client) => client.deposit(100_000n),
  resume: (client, pending) => client.resumeDeposit(pending),
};
const FLOWS = [CARD, DIRECT, PREPAID, DEPOSIT];

const open = ({ pay }: Flow, options: Partial<SpeechgateOptions> = {}) =>
  new Speechgate({ baseUrl: proxy.url, trust: pinsOf(gateway), pay, timeoutMs: 0, ...options });

/** Answers the requests that pay otherwise. */
const answer =
  ({ marker }: Flow, status: number, json: unknown): Tamper =>
  (proxied, _path, headers) => {
    if (headers[marker] === undefined) return;
    Object.assign(proxied, { status, json, headers: new Headers({ 'content-type': 'application/json' }) });
  };

const NOT_CHARGED = { payment: { state: 'not_charged' } };
const refusal = (code: string, details: object | null = null) => ({ error: { code, message: 'No.', details } });

/** A purchase whose answer was lost, by the client's budget too. */
async function lostPurchase(flow: Flow, options: Partial<SpeechgateOptions> = {}): Promise<PendingPurchase> {
  proxy.tamper = answer(flow, 504, '<h1>Gateway Timeout</h1>');
  const error = await errorOf(flow.buy(open(flow, options)));
  assert.ok(error instanceof OutcomeUnknownError, String(error));
  return error.pending;
}

/** The same purchase, whose signature has ended so many seconds ago. */
const ended = (pending: PendingPurchase, seconds = 60): PendingPurchase =>
  pending.expiresAt === null ? pending : { ...pending, expiresAt: Math.floor(Date.now() / 1000) - seconds };

const TELL_NOTHING = [
  [400, 'INVALID_VOICE', { field: 'voice' }],
  [400, 'INVALID_REQUEST', { field: 'x-x402-expiry', rule: 'lifetime' }],
  [400, 'UNKNOWN_TTS_MODEL', { field: 'model' }],
  [401, 'UNAUTHORIZED', null],
  [402, 'PAYMENT_REQUIRED', { reason: 'insufficient_funds' }],
  [409, 'PAYMENT_IDENTIFIER_CONFLICT', null],
  [409, 'PREPAID_NONCE_REPLAYED', { field: 'x-x402-nonce', rule: 'unique' }],
  [429, 'RATE_LIMITED', null],
  [500, 'INTERNAL_ERROR', null],
  [502, 'PAYMENT_ERROR', null],
  [503, 'CONFIG_ERROR', { reason: 'database_unavailable' }],
  [503, 'TTS_PROVIDER_NOT_CONFIGURED', null],
] as const;

for (const flow of FLOWS) {
  test(`${flow.name}: the payment state of a refused retry decides, whatever its code`, async (t) => {
    const { budget, told } = recordingBudget();
    const pending = await lostPurchase(flow, { budget });
    const over = ended(pending);
    const [client, observer] = [open(flow, { budget }), open(flow)];
    const unknown = { payment: { state: 'unknown', amountMicroUsd: 198 } };
    for (const [status, code, details] of TELL_NOTHING) {
      for (const [repeated, said] of [
        [pending, details],
        [over, details],
        [over, unknown],
      ] as const) {
        proxy.tamper = answer(flow, status, refusal(code, said));
        const error = await errorOf(flow.resume(client, repeated));
        t.ok(error instanceof OutcomeUnknownError, `${status} ${code} ${JSON.stringify(said)}: ${error}`);
        if (repeated === over) t.equal(await client.resolveOutcome(over), null);
      }
      proxy.tamper = answer(flow, status, refusal(code, NOT_CHARGED));
      const error = await errorOf(flow.resume(observer, over));
      t.ok(error instanceof ServiceError, `${status} ${code}: ${error}`);
      t.equal(error.payment?.state, 'not_charged');
      t.strictSame(await observer.resolveOutcome(over), { chargedMicroUsd: 0n, speech: null });
    }
    t.ok(!told.some((line) => line.startsWith('settle')), told.join());
  });

  test(`${flow.name}: a first refusal without payment state was not charged`, async (t) => {
    for (const [status, code] of [
      [400, 'INVALID_VOICE'],
      [402, 'PAYMENT_REQUIRED'],
      [503, 'TTS_PROVIDER_NOT_CONFIGURED'],
    ] as const) {
      proxy.tamper = answer(flow, status, refusal(code));
      const error = await errorOf(flow.buy(open(flow)));
      t.ok(error instanceof ServiceError, `${status} ${code}: ${error}`);
      t.equal(error.payment, null);
    }
  });

  test(`${flow.name}: a first error after the lookup leaves the outcome unknown`, async (t) => {
    for (const [status, json] of [
      [503, refusal('CONFIG_ERROR', { reason: 'database_unavailable' })],
      [503, refusal('CONFIG_ERROR', { payment: { state: 'unknown' } })],
      [500, refusal('INTERNAL_ERROR')],
      [409, refusal('PAYMENT_OUTCOME_UNKNOWN')],
      [502, '<h1>Bad Gateway</h1>'],
    ] as const) {
      proxy.tamper = answer(flow, status, json);
      t.ok((await errorOf(flow.buy(open(flow)))) instanceof OutcomeUnknownError, `${status} ${json}`);
    }
  });

  test(`${flow.name}: a request is retried while the database is unavailable`, async (t) => {
    let asked = 0;
    const away = answer(flow, 503, refusal('CONFIG_ERROR', { reason: 'database_unavailable' }));
    const back = answer(flow, 400, refusal('INVALID_VOICE', NOT_CHARGED));
    proxy.tamper = (...proxied) => {
      if (proxied[2][flow.marker] === undefined) return;
      asked += 1;
      return (asked === 1 ? away : back)(...proxied);
    };
    await errorOf(flow.buy(open(flow, { timeoutMs: 5_000 })));
    t.ok(asked > 1, String(asked));
  });
}

test('a charge settles at its amount, and audio that may still come is resumable', async (t) => {
  for (const flow of [CARD, DIRECT, PREPAID]) {
    const pending = ended(await lostPurchase(flow));
    const client = open(flow);
    const charged = { payment: { state: 'charged', amountMicroUsd: 150 } };
    proxy.tamper = answer(flow, 409, refusal('PAYMENT_IDENTIFIER_CONFLICT', charged));
    const lost = await errorOf(client.resume(pending));
    t.ok(lost instanceof AudioLostError, `${flow.name}: ${lost}`);
    t.equal(lost.chargedMicroUsd, 150n);
    t.strictSame(await client.resolveOutcome(pending), { chargedMicroUsd: 150n, speech: null });
    proxy.tamper = answer(flow, 503, refusal('REPLAY_CACHE_UNAVAILABLE', charged));
    t.ok((await errorOf(client.resume(pending))) instanceof OutcomeUnknownError, flow.name);
    t.equal(await client.resolveOutcome(pending), null);
  }
});

test('a charged deposit that is not credited yet stays resumable', async (t) => {
  const pending = ended(await lostPurchase(DEPOSIT));
  const payment = { state: 'charged', transaction: `0x${'1'.repeat(64)}` };
  proxy.tamper = answer(DEPOSIT, 409, refusal('PAYMENT_REPLAY_PENDING', { payment }));
  t.ok((await errorOf(open(DEPOSIT).resumeDeposit(pending))) instanceof OutcomeUnknownError);
  t.equal(await open(DEPOSIT).resolveOutcome(pending), null);
});

test('an unexpired authorization may still settle, whatever a retry returns', async (t) => {
  for (const flow of [DIRECT, DEPOSIT]) {
    const pending = await lostPurchase(flow);
    proxy.tamper = answer(flow, 402, refusal('PAYMENT_REQUIRED', NOT_CHARGED));
    t.ok((await errorOf(flow.resume(open(flow), pending))) instanceof OutcomeUnknownError, flow.name);
  }
});

test('R34: not_charged proves nothing a day after a prepaid nonce expired', async (t) => {
  const pending = await lostPurchase(PREPAID);
  const client = open(PREPAID);
  proxy.tamper = answer(PREPAID, 400, refusal('INVALID_REQUEST', NOT_CHARGED));
  t.strictSame(await client.resolveOutcome(ended(pending, DAY_SECONDS - 3600)), { chargedMicroUsd: 0n, speech: null });
  for (const seconds of [DAY_SECONDS, 7 * DAY_SECONDS]) {
    t.equal(await client.resolveOutcome(ended(pending, seconds)), null);
    t.ok((await errorOf(client.resume(ended(pending, seconds)))) instanceof OutcomeUnknownError);
  }
  proxy.tamper = answer(PREPAID, 409, refusal('PREPAID_NONCE_REPLAYED', { payment: { state: 'charged' } }));
  t.equal((await errorOf(client.resume(ended(pending, DAY_SECONDS)))).chargedMicroUsd, PRICE);
});

test('a streamed card request that may have been charged counts as charged', async (t) => {
  const card = { ...CARD, marker: 'x-credit-account' };
  for (const [status, json, settled] of [
    [503, refusal('CONFIG_ERROR', { reason: 'database_unavailable' }), 198],
    [502, refusal('CONFIG_ERROR', { payment: { state: 'unknown' } }), 198],
    [502, refusal('CONFIG_ERROR', { payment: { state: 'charged', amountMicroUsd: 100 } }), 100],
    [400, refusal('CONFIG_ERROR', { payment: { state: 'charged', amountMicroUsd: 100 } }), 100],
    [400, refusal('CONFIG_ERROR', NOT_CHARGED), 0],
    [400, refusal('CONFIG_ERROR'), 0],
    [502, '<h1>Bad Gateway</h1>', 198],
    [524, '<h1>A Timeout Occurred</h1>', 198],
  ] as const) {
    const { budget, told } = recordingBudget();
    proxy.tamper = answer(card, status, json);
    const error = await errorOf(open(card, { budget }).speak(HELLO));
    t.equal(error instanceof AudioLostError, settled > 0, String(error));
    t.equal(told.at(-1), `settle ${settled}`);
  }
});

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
  return { pay, end: () => (hasEnded = true) };
}

test('a refused direct payment stays reserved until it expires', async (t) => {
  for (const [status, code] of [
    [400, 'INVALID_VOICE'],
    [402, 'PAYMENT_REQUIRED'],
    [409, 'PAYMENT_IDENTIFIER_CONFLICT'],
    [502, 'TTS_PROVIDER_ERROR'],
  ] as const) {
    const { pay, end } = endingDirect();
    const trust = pinsOf(gateway);
    const client = new Speechgate({ baseUrl: proxy.url, trust, pay, maxTotalMicroUsd: (3n * PRICE) / 2n });
    proxy.tamper = answer(DIRECT, status, refusal(code, NOT_CHARGED));
    t.ok((await errorOf(client.speak(HELLO))) instanceof ServiceError);
    proxy.tamper = undefined;
    t.equal((await errorOf(client.speak(HELLO))).scope, 'client', code);
    end();
    proxy.tamper = answer(DIRECT, 402, refusal('PAYMENT_REQUIRED', NOT_CHARGED));
    t.equal((await errorOf(client.speak(HELLO))).scope, 'unconfirmed', code);
  }
});

/** Charges truly, and says that it has not. */
const deny = answer(PREPAID, 503, refusal('TTS_PROVIDER_ERROR', NOT_CHARGED));

test('prepaid: after expiry, denied charges count in a second sum up to the cap', async (t) => {
  let aheadMs = 0;
  const path = await budgetPath(t);
  const budget = await openBudget(t, path, { perDayMicroUsd: 5n * PRICE }, () => Date.now() + aheadMs);
  const { client, balance } = await prepaidCaller(gateway, { budget, timeoutMs: 0 });
  proxy.tamper = deny;
  let taken = 0;
  for (; taken < 20; taken += 1) {
    const error = await errorOf(client.speak(HELLO));
    if (error instanceof OverCapError) {
      t.equal(error.scope, 'unconfirmed');
      break;
    }
    aheadMs += 131_000;
  }
  proxy.tamper = undefined;
  t.strictSame([taken, await balance()], [5, 1_000_000n - 5n * PRICE]);
  const { spentMicroUsd, unconfirmedTodayMicroUsd } = await budget.read();
  t.strictSame([spentMicroUsd, unconfirmedTodayMicroUsd], [0n, 5n * PRICE]);
  await budget.close();
  const reopened = await openBudget(t, path, { perDayMicroUsd: 5n * PRICE }, () => Date.now() + aheadMs);
  t.equal((await reopened.read()).unconfirmedTodayMicroUsd, 5n * PRICE);
});

test('a reservation lasts until it expires by both clocks, client and service', async (t) => {
  const path = await budgetPath(t);
  let aheadMs = 0;
  const budget = await openBudget(t, path, { totalMicroUsd: 2n * PRICE }, () => Date.now() + aheadMs);
  const { client } = await prepaidCaller(gateway, { budget, timeoutMs: 0 });
  proxy.tamper = (proxied, asked, headers) => {
    deny(proxied, asked, headers);
    proxied.headers.set('date', new Date(Date.now() - 3_600_000).toUTCString());
  };
  await errorOf(client.speak(HELLO));
  proxy.tamper = undefined;
  aheadMs = 600_000;
  t.equal((await budget.read()).reservedMicroUsd, PRICE);
  aheadMs = 3_800_000;
  t.equal((await budget.read()).reservedMicroUsd, 0n);
});

test('a purchase that was never sent is released at once', async (t) => {
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
  t.strictSame([reservedMicroUsd, unconfirmedMicroUsd], [0n, 0n]);
});

/** The two places of a cap on all purchases of a client. */
const totalCaps = async (t: Test, totalMicroUsd: bigint) => ({
  'a client': { maxTotalMicroUsd: totalMicroUsd },
  'a budget file': { budget: await openBudget(t, await budgetPath(t), { totalMicroUsd }) },
});

test('card: a falling balance counts, whatever price and receipt say', async (t) => {
  // The catalog says that speech costs nothing, the gateway is told of no maximum, and the receipt says nothing either.
  const send: typeof fetch = (request, init) => {
    const { headers } = request as Request;
    headers.delete('x-credit-max-amount');
    return fetch(request, init);
  };
  proxy.tamper = (proxied, asked) => {
    if (asked === '/tts/models') for (const { pricing } of proxied.json.models) pricing.ratePerCharUsd = 0;
    if (asked === '/tts') proxied.headers.set('x-credit-charged', '0');
  };
  for (const [place, cap] of Object.entries(await totalCaps(t, 3n * PRICE))) {
    const pay = cardCredits(await gateway.fund(500));
    const client = new Speechgate({ baseUrl: proxy.url, pay, fetch: send, ...cap });
    let bought = 0;
    for (; bought < 10; bought += 1) {
      const end = await client.speak({ ...HELLO, voice: 'provider-a_alloy' }).then(
        (speech) => speech.bytes(),
        (error) => error,
      );
      if (end instanceof OverCapError) break;
    }
    // Nothing is known before the first balance; from then on every fall counts.
    t.ok(bought <= 5, `${place}: ${bought}`);
  }
  proxy.tamper = undefined;
});

test('card: a lost response counts once, not again by the balance', async (t) => {
  for (const [place, cap] of Object.entries(await totalCaps(t, 4n * PRICE))) {
    const account = await gateway.fund(500);
    const client = new Speechgate({ baseUrl: proxy.url, pay: cardCredits(account), ...cap });
    const buy = async () => (await client.speak(HELLO)).bytes();
    await buy();
    proxy.tamper = (proxied, asked) => {
      if (asked === '/tts') proxied.headers.set('content-type', 'text/html');
    };
    t.equal((await errorOf(buy())).constructor, AudioLostError, place);
    proxy.tamper = undefined;
    await buy();
    await buy();
    t.equal((await errorOf(buy())).constructor, OverCapError, place);
    t.equal(await gateway.balance(account), 5_000_000n - 4n * PRICE);
  }
});

test('an implausible charge counts as the full reserved amount', async (t) => {
  for (const charged of ['-1', '199', '99999999999']) {
    proxy.tamper = undefined;
    const { budget, told } = recordingBudget();
    const { client } = await prepaidCaller(gateway, { budget });
    const payment = { state: 'charged', amountMicroUsd: Number(charged) };
    proxy.tamper = answer(PREPAID, 409, refusal('PREPAID_NONCE_REPLAYED', { payment }));
    await errorOf(client.speak(HELLO));
    t.equal(told.at(-1), `settle ${PRICE}`);
  }
});
