import assert from 'node:assert/strict';
import { test } from 'tap';
import { cardCredits, directX402, PaymentRequiredError, prepaid, Speechgate } from '../../src/client/index.ts';
import { testChain, wallet } from '../support/chain.ts';
import { errorOf, pinsOf, recordingBudget, startCardGateway, startPaidGateway } from '../support/client.ts';
import { mineSteadily } from '../support/deposit.ts';
import { silentMp3 } from '../support/silent-audio.ts';
import { PRICE, timesPaid } from '../support/x402.ts';

const { chain, skip } = await testChain();
const ORDER = { text: ' Hello world\n' };
const AUDIO = new Uint8Array(silentMp3(1000));

test('card credits: the audio as it is spoken, the receipt, and the balance', async (t) => {
  const gateway = await startCardGateway(t);
  const account = await gateway.fund(500);
  const client = new Speechgate({ baseUrl: gateway.url, pay: cardCredits(account) });
  const speech = await client.speak(ORDER);
  assert.deepEqual(await speech.bytes(), AUDIO);
  assert.equal(speech.contentType, 'audio/mpeg');
  const { flow, chargedMicroUsd, balanceMicroUsd, identifier, isReplay } = speech.receipt;
  assert.deepEqual(
    [flow, chargedMicroUsd, balanceMicroUsd, identifier, isReplay],
    ['card', PRICE, 4_999_802n, null, false],
  );
  assert.deepEqual(await client.balance(), { flow: 'card', account, balanceMicroUsd: 4_999_802n });
});

test('card credits: a durable request is a job, and is paid once', async (t) => {
  const gateway = await startCardGateway(t);
  const account = await gateway.fund(500);
  const client = new Speechgate({ baseUrl: gateway.url, pay: cardCredits(account) });
  const speech = await client.speak(ORDER, { durable: true });
  assert.deepEqual(await speech.bytes(), AUDIO);
  assert.equal(speech.receipt.chargedMicroUsd, PRICE);
  assert.equal(await gateway.balance(account), 5_000_000n - PRICE);
});

test('direct payment: one payment on the chain, also with a quote', { skip }, async (t) => {
  const gateway = await startPaidGateway(t, chain);
  const payer = await wallet(chain.client, 1_000_000n);
  for (const [paid, quoteFirst] of [false, true].entries()) {
    const pay = directX402(payer, { quoteFirst });
    const client = new Speechgate({ baseUrl: gateway.url, pay, trust: pinsOf(gateway) });
    const speech = await client.speak(ORDER);
    assert.deepEqual(await speech.bytes(), AUDIO);
    assert.equal(speech.receipt.chargedMicroUsd, PRICE);
    assert.match(speech.receipt.transaction ?? '', /^0x[0-9a-f]{64}$/);
    assert.equal(await timesPaid(chain, payer), paid + 1);
  }
});

test('R23: a refused direct payment may still be taken, and stays set aside', { skip }, async (t) => {
  const gateway = await startPaidGateway(t, chain);
  const poor = await wallet(chain.client, PRICE - 1n);
  const { budget, told } = recordingBudget();
  const client = new Speechgate({ baseUrl: gateway.url, pay: directX402(poor), trust: pinsOf(gateway), budget });
  assert.ok((await errorOf(client.speak(ORDER))) instanceof PaymentRequiredError);
  assert.deepEqual(told, [`reserve direct ${PRICE}`, 'record speech']);
});

test('prepaid: deposit, speech, balance', { skip }, async (t) => {
  const gateway = await startPaidGateway(t, chain);
  const payer = await wallet(chain.client, 1_000_000n);
  const client = new Speechgate({ baseUrl: gateway.url, pay: prepaid(payer), trust: pinsOf(gateway) });
  assert.equal((await client.balance()).balanceMicroUsd, 0n);
  const stop = mineSteadily(t, chain);
  const deposit = await client.deposit(100_000n);
  stop();
  assert.equal(deposit.balanceMicroUsd, 100_000n);
  const speech = await client.speak(ORDER);
  assert.deepEqual(await speech.bytes(), AUDIO);
  assert.equal(speech.receipt.chargedMicroUsd, PRICE);
  assert.equal(speech.receipt.balanceMicroUsd, 100_000n - PRICE);
  assert.equal((await client.balance()).balanceMicroUsd, 100_000n - PRICE);
});
