/** What an error answer says about the money, in every flow (R64). */
import assert from 'node:assert/strict';
import { t, test } from 'tap';
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts';
import {
  AudioLostError,
  cardCredits,
  directX402,
  OutcomeUnknownError,
  type PaymentWay,
  type PendingPurchase,
  prepaid,
  ServiceError,
  Speechgate,
  type SpeechgateOptions,
} from '../../src/client/index.ts';
import { errorOf, pinsOf, recordingBudget } from '../support/client.ts';
import { type Lie, startLyingServer } from '../support/lying-server.ts';
import { startPrepaidGateway } from '../support/prepaid.ts';

const HELLO = { text: 'Hello world' };
const PRICE = 198n;
const DAY_SECONDS = 86_400;
const lying = await startLyingServer(t);
const gateway = await startPrepaidGateway(t, { BASE_URL: lying.url });
lying.target = gateway.url;
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
const FLOWS: readonly Flow[] = [
  { name: 'card, durable', pay: cardCredits(await gateway.fund(500)), marker: 'idempotency-key', ...speech },
  { name: 'direct', pay: directX402(wallet), marker: 'payment-signature', ...speech },
  { name: 'prepaid', pay: prepaid(wallet), marker: 'x-x402-signature', ...speech },
  {
    name: 'deposit',
    pay: prepaid(wallet),
    marker: 'payment-signature',
    buy: (client) => client.deposit(100_000n),
    resume: (client, pending) => client.resumeDeposit(pending),
  },
];

const open = ({ pay }: Flow, options: Partial<SpeechgateOptions> = {}) =>
  new Speechgate({ baseUrl: lying.url, trust: pinsOf(gateway), pay, patienceMs: 0, ...options });

/** Answers the requests that pay otherwise. */
const answer =
  ({ marker }: Flow, status: number, json: unknown): Lie =>
  (truth, _path, headers) => {
    if (headers[marker] === undefined) return;
    Object.assign(truth, { status, json, headers: new Headers({ 'content-type': 'application/json' }) });
  };

const refusal = (code: string, details: object | null = null) => ({ error: { code, message: 'No.', details } });

/** A purchase whose answer was lost, by the client's budget too. */
async function lostPurchase(flow: Flow, options: Partial<SpeechgateOptions> = {}): Promise<PendingPurchase> {
  lying.lie = answer(flow, 504, '<h1>Gateway Timeout</h1>');
  const error = await errorOf(flow.buy(open(flow, options)));
  assert.ok(error instanceof OutcomeUnknownError, String(error));
  return error.pending;
}

/** The same purchase, whose signature has ended so many seconds ago. */
const ended = (pending: PendingPurchase, seconds = 60): PendingPurchase =>
  pending.expiresAt === null ? pending : { ...pending, expiresAt: Math.floor(Date.now() / 1000) - seconds };

const TELL_NOTHING = [
  [400, 'INVALID_QUOTE', null],
  [400, 'INVALID_VOICE', { field: 'voice' }],
  [400, 'INVALID_REQUEST', { field: 'x-x402-expiry', rule: 'lifetime' }],
  [400, 'UNKNOWN_TTS_MODEL', { field: 'model' }],
  [401, 'UNAUTHORIZED', null],
  [402, 'PAYMENT_REQUIRED', { reason: 'insufficient_funds' }],
  [404, 'NOT_FOUND', null],
  [409, 'PAYMENT_IDENTIFIER_CONFLICT', null],
  [409, 'PREPAID_NONCE_REPLAYED', { field: 'x-x402-nonce', rule: 'unique' }],
  [413, 'TEXT_TOO_LONG', null],
  [429, 'RATE_LIMITED', null],
  [500, 'INTERNAL_ERROR', null],
  [502, 'PAYMENT_ERROR', null],
  [503, 'CONFIG_ERROR', { reason: 'database_unavailable' }],
  [503, 'CONFIG_ERROR', { setting: 'X402_PAY_TO' }],
  [503, 'TTS_PROVIDER_NOT_CONFIGURED', null],
] as const;

for (const flow of FLOWS) {
  test(`${flow.name}: after a lost answer, a refusal without payment leaves the end unknown`, async (t) => {
    const { budget, told } = recordingBudget();
    const pending = await lostPurchase(flow, { budget });
    const client = open(flow, { budget });
    for (const [status, code, details] of TELL_NOTHING) {
      await t.test(`${status} ${code}`, async () => {
        lying.lie = answer(flow, status, refusal(code, details));
        for (const repeated of [pending, ended(pending)]) {
          assert.ok((await errorOf(flow.resume(client, repeated))) instanceof OutcomeUnknownError);
        }
        assert.equal(await client.conclude(ended(pending)), null);
      });
    }
    assert.ok(!told.some((line) => line.startsWith('settle')), told.join());
  });

  test(`${flow.name}: not_charged after the signature's end is nothing charged, whatever the code`, async () => {
    const pending = ended(await lostPurchase(flow));
    const client = open(flow);
    for (const [status, code] of TELL_NOTHING) {
      lying.lie = answer(flow, status, refusal(code, { payment: { state: 'not_charged' } }));
      const error = await errorOf(flow.resume(client, pending));
      assert.ok(error instanceof ServiceError, `${status} ${code}: ${error}`);
      assert.equal(error.payment?.state, 'not_charged');
      assert.deepEqual(await client.conclude(pending), { chargedMicroUsd: 0n, speech: null });
    }
  });

  test(`${flow.name}: unknown stays reserved and resumable, whatever the code`, async () => {
    const pending = ended(await lostPurchase(flow));
    const client = open(flow);
    for (const [status, code] of TELL_NOTHING) {
      lying.lie = answer(flow, status, refusal(code, { payment: { state: 'unknown', amountMicroUsd: 198 } }));
      assert.ok((await errorOf(flow.resume(client, pending))) instanceof OutcomeUnknownError, `${status} ${code}`);
      assert.equal(await client.conclude(pending), null);
    }
  });

  test(`${flow.name}: a first refusal of the service without payment was not charged`, async () => {
    for (const [status, code] of [
      [400, 'INVALID_VOICE'],
      [402, 'PAYMENT_REQUIRED'],
      [404, 'NOT_FOUND'],
      [413, 'TEXT_TOO_LONG'],
      [503, 'TTS_PROVIDER_NOT_CONFIGURED'],
    ] as const) {
      lying.lie = answer(flow, status, refusal(code));
      const error = await errorOf(flow.buy(open(flow)));
      assert.ok(error instanceof ServiceError, `${status} ${code}: ${error}`);
      assert.equal(error.payment, null);
    }
  });

  test(`${flow.name}: a first answer from behind the look-up that says nothing is unknown`, async () => {
    for (const [status, json] of [
      [503, refusal('CONFIG_ERROR', { reason: 'database_unavailable' })],
      [503, refusal('CONFIG_ERROR', { payment: { state: 'unknown' } })],
      [500, refusal('INTERNAL_ERROR')],
      [409, refusal('PAYMENT_OUTCOME_UNKNOWN')],
      [502, '<h1>Bad Gateway</h1>'],
    ] as const) {
      lying.lie = answer(flow, status, json);
      assert.ok((await errorOf(flow.buy(open(flow)))) instanceof OutcomeUnknownError, `${status} ${json}`);
    }
  });

  test(`${flow.name}: a database that is unavailable is asked again, whatever its code`, async () => {
    let asked = 0;
    lying.lie = (truth, path, headers) => {
      if (headers[flow.marker] === undefined) return;
      asked += 1;
      const [status, code] = asked === 1 ? [503, 'CONFIG_ERROR'] : [400, 'INVALID_VOICE'];
      const payment = asked === 1 ? {} : { payment: { state: 'not_charged' } };
      answer(flow, status as number, refusal(code as string, { reason: 'database_unavailable', ...payment }))(
        truth,
        path,
        headers,
      );
    };
    await errorOf(flow.buy(open(flow, { patienceMs: 5_000 })));
    assert.ok(asked > 1, String(asked));
  });
}

test('charged is settled at what was taken; audio that may still come stays resumable', async () => {
  for (const flow of FLOWS.filter(({ name }) => name !== 'deposit')) {
    const pending = ended(await lostPurchase(flow));
    const client = open(flow);
    const charged = { payment: { state: 'charged', amountMicroUsd: 150 } };
    lying.lie = answer(flow, 409, refusal('PAYMENT_IDENTIFIER_CONFLICT', charged));
    const lost = await errorOf(client.resume(pending));
    assert.ok(lost instanceof AudioLostError, `${flow.name}: ${lost}`);
    assert.equal(lost.chargedMicroUsd, 150n);
    assert.deepEqual(await client.conclude(pending), { chargedMicroUsd: 150n, speech: null });
    lying.lie = answer(flow, 503, refusal('REPLAY_CACHE_UNAVAILABLE', charged));
    assert.ok((await errorOf(client.resume(pending))) instanceof OutcomeUnknownError, flow.name);
    assert.equal(await client.conclude(pending), null);
  }
});

test('a deposit that is charged and not credited yet stays resumable', async () => {
  const flow = FLOWS[3] as Flow;
  const pending = ended(await lostPurchase(flow));
  const payment = { state: 'charged', transaction: `0x${'1'.repeat(64)}` };
  lying.lie = answer(flow, 409, refusal('PAYMENT_REPLAY_PENDING', { payment }));
  assert.ok((await errorOf(open(flow).resumeDeposit(pending))) instanceof OutcomeUnknownError);
  assert.equal(await open(flow).conclude(pending), null);
});

test('an authorization that has not ended may still be taken, whatever a repetition is told', async () => {
  for (const flow of FLOWS.filter(({ marker }) => marker === 'payment-signature')) {
    const pending = await lostPurchase(flow);
    lying.lie = answer(flow, 402, refusal('PAYMENT_REQUIRED', { payment: { state: 'not_charged' } }));
    assert.ok((await errorOf(flow.resume(open(flow), pending))) instanceof OutcomeUnknownError, flow.name);
  }
});

test('R34: a day after its end, a prepaid nonce may be deleted: not_charged proves nothing then', async () => {
  const flow = FLOWS[2] as Flow;
  const pending = await lostPurchase(flow);
  const client = open(flow);
  lying.lie = answer(flow, 400, refusal('INVALID_REQUEST', { payment: { state: 'not_charged' } }));
  assert.deepEqual(await client.conclude(ended(pending, DAY_SECONDS - 3600)), { chargedMicroUsd: 0n, speech: null });
  for (const seconds of [DAY_SECONDS, 7 * DAY_SECONDS]) {
    assert.equal(await client.conclude(ended(pending, seconds)), null);
    assert.ok((await errorOf(client.resume(ended(pending, seconds)))) instanceof OutcomeUnknownError);
  }
  lying.lie = answer(flow, 409, refusal('PREPAID_NONCE_REPLAYED', { payment: { state: 'charged' } }));
  assert.equal((await errorOf(client.resume(ended(pending, DAY_SECONDS)))).chargedMicroUsd, PRICE);
});

test('a streamed card request that may have been charged counts as charged', async () => {
  const card = { ...(FLOWS[0] as Flow), marker: 'x-credit-account' };
  for (const [status, details, settled] of [
    [503, { reason: 'database_unavailable' }, 198],
    [502, { payment: { state: 'unknown' } }, 198],
    [502, { payment: { state: 'charged', amountMicroUsd: 100 } }, 100],
    [400, { payment: { state: 'charged', amountMicroUsd: 100 } }, 100],
    [400, { payment: { state: 'not_charged' } }, 0],
    [400, null, 0],
  ] as const) {
    const { budget, told } = recordingBudget();
    lying.lie = answer(card, status, refusal('CONFIG_ERROR', details));
    const error = await errorOf(open(card, { budget }).speak(HELLO));
    assert.equal(error instanceof AudioLostError, settled > 0, String(error));
    assert.equal(told.at(-1), `settle ${settled}`);
  }
});
