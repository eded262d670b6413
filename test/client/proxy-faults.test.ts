import assert from 'node:assert/strict';
import { t, test } from 'tap';
import { AudioLostError, cardCredits, directX402, prepaid, Speechgate } from '../../src/client/index.ts';
import { testChain, wallet } from '../support/chain.ts';
import { errorOf, pinsOf, prepaidCaller } from '../support/client.ts';
import { mineSteadily } from '../support/deposit.ts';
import { startLyingServer } from '../support/lying-server.ts';
import { startPrepaidGateway } from '../support/prepaid.ts';
import { silentMp3 } from '../support/silent-audio.ts';
import { startX402Gateway, timesPaid } from '../support/x402.ts';

const { chain, skip } = await testChain();
const HELLO = { text: 'Hello world' };
const PRICE = 198n;
const AUDIO = new Uint8Array(silentMp3(1000));
const lying = await startLyingServer(t);
const gateway = await startPrepaidGateway(t, { BASE_URL: lying.url }, { worker: true });

/** A proxy hands the next requests to a path on, and answers itself: all of them, or so many. */
function loseAnswers(of: string, status: number, target: string, times = 1): () => number {
  let lost = 0;
  lying.target = target;
  lying.lie = (truth, path) => {
    if (path !== of || truth.status === 402 || lost === times) return;
    lost += 1;
    for (const name of [...truth.headers.keys()]) truth.headers.delete(name);
    truth.headers.set('content-type', 'text/html');
    Object.assign(truth, { status, json: '<h1>Bad Gateway</h1>' });
  };
  return () => lost;
}

for (const status of [502, 503, 504, 524]) {
  test(`what a proxy says of itself (${status}) is no word of the service`, async (t) => {
    await t.test('card, streamed: it counts as charged, and is not bought again', async () => {
      const account = await gateway.fund(500);
      const client = new Speechgate({ baseUrl: lying.url, pay: cardCredits(account) });
      loseAnswers('/tts', status, gateway.url);
      assert.ok((await errorOf(client.speak(HELLO))) instanceof AudioLostError);
      assert.equal(await gateway.balance(account), 5_000_000n - PRICE);
    });

    await t.test('card, durable: the same job is asked for', async () => {
      const account = await gateway.fund(500);
      const client = new Speechgate({ baseUrl: lying.url, pay: cardCredits(account) });
      const lost = loseAnswers('/tts?async=true', status, gateway.url);
      assert.deepEqual(await (await client.speak(HELLO, { durable: true })).bytes(), AUDIO);
      assert.deepEqual([lost(), await gateway.balance(account)], [1, 5_000_000n - PRICE]);
    });

    await t.test('prepaid: the same signature is asked about', async () => {
      const { client, balance, wallet } = await prepaidCaller(gateway);
      loseAnswers('/x402/tts', status, gateway.url);
      // The service takes the answer for arrived, and keeps no audio.
      assert.ok((await errorOf(client.speak(HELLO))) instanceof AudioLostError);
      assert.deepEqual([wallet.signed, await balance()], [1, 1_000_000n - PRICE]);
    });
  });
}

test('direct and deposit: the same payment is asked about, and settled once', { skip }, async (t) => {
  const onChain = await startX402Gateway(t, chain, { BASE_URL: lying.url });
  const payer = await wallet(chain.client, 1_000_000n);
  const open = (pay = directX402(payer)) => new Speechgate({ baseUrl: lying.url, pay, trust: pinsOf(onChain) });
  const lost = loseAnswers('/x402/tts', 502, onChain.url, 4);
  const speech = await open().speak(HELLO);
  assert.deepEqual([lost(), speech.receipt.isReplay, await timesPaid(chain, payer)], [4, true, 1]);

  const stop = mineSteadily(t, chain);
  loseAnswers('/x402/deposit', 504, onChain.url);
  const { balanceMicroUsd } = await open(prepaid(payer)).deposit(100_000n);
  stop();
  assert.deepEqual([balanceMicroUsd, await timesPaid(chain, payer)], [100_000n, 2]);
});
