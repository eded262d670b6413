import assert from 'node:assert/strict';
import { t, test } from 'tap';
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts';
import { directX402, OverCapError, type PaymentWay, ServiceError, Speechgate } from '../../src/client/index.ts';
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
    const client = new Speechgate({ baseUrl: lying.url, trust: pinsOf(gateway), pay, maxTotalMicroUsd: PRICE });
    lying.lie = paid(status, code);
    assert.ok((await errorOf(client.speak(HELLO))) instanceof ServiceError);
    lying.lie = undefined;
    assert.ok((await errorOf(client.speak(HELLO))) instanceof OverCapError);
    end();
    lying.asked.length = 0;
    lying.lie = paid(402, 'PAYMENT_REQUIRED');
    assert.ok(!((await errorOf(client.speak(HELLO))) instanceof OverCapError));
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
