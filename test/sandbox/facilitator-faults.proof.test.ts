import assert from 'node:assert/strict';
import { HTTPFacilitatorClient } from '@x402/core/http';
import type { PaymentPayload, PaymentRequirements } from '@x402/core/types';
import { test } from 'tap';
import { chainClient } from '../../src/sandbox/chain/chain-client.ts';
import { usdcBalance } from '../../src/sandbox/chain/fund.ts';
import { startChain } from '../../src/sandbox/local-chain.ts';
import {
  included,
  newNonce,
  signAuthorization,
  submitAuthorization,
  usesOfAuthorizations,
  wallet,
} from '../support/chain.ts';
import { pay, payloadOf, requirements, testFacilitator } from '../support/facilitator.ts';
import {
  anotherTransaction,
  invalid,
  nonceAlreadyUsed,
  onlyClaimed,
  refused,
  settlementPending,
} from '../support/facilitator-faults.ts';
import { until } from '../support/until.ts';
import { chain, PRICE, post, scene, skip } from './facilitator-scene.ts';

const envelope = (paymentPayload: PaymentPayload, paymentRequirements: PaymentRequirements) =>
  JSON.stringify({ x402Version: 2, paymentPayload, paymentRequirements });

test('verify faults apply to one call each, in order', { skip }, async (t) => {
  const { facilitator, official, payer, offer } = await scene(t);
  const payload = await pay(payer, offer);
  const body = envelope(payload, offer);
  const url = `${facilitator.url}/verify`;
  facilitator.faults.verify(
    invalid('invalid_exact_evm_insufficient_balance'),
    'error',
    'garbage',
    'reset',
    'redirect',
    'hang',
  );

  const verified = await official.verify(payload, offer);
  assert.deepEqual([verified.isValid, verified.invalidReason], [false, 'invalid_exact_evm_insufficient_balance']);
  assert.equal((await post(url, body)).status, 500);
  const garbage = await post(url, body);
  assert.equal(garbage.status, 200);
  assert.throws(() => JSON.parse(garbage.text));
  await assert.rejects(post(url, body), (error: Error) => (error.cause as { code?: string }).code === 'ECONNRESET');
  const redirect = await post(url, body);
  assert.equal(redirect.status, 307);
  await assert.rejects(post(url, body, 200), { name: 'TimeoutError' });

  assert.equal((await official.verify(payload, offer)).isValid, true);
  const followed = await post(new URL(redirect.location ?? '', url).href, body);
  assert.equal(JSON.parse(followed.text).isValid, true);
  assert.deepEqual(
    facilitator.calls.map(({ redirected, result }) => [redirected, result !== undefined]),
    [...Array(6).fill([false, false]), [false, true], [true, true]],
  );
  facilitator.faults.verify('error');
  facilitator.faults.clear();
  assert.equal((await official.verify(payload, offer)).isValid, true);
});

for (const broadcast of [false, true]) {
  const when = broadcast ? 'after the broadcast' : 'before any broadcast';
  test(`settle faults ${when} transfer money ${broadcast ? 'once' : 'never'}`, { skip }, async (t) => {
    const { facilitator, payer, offer, paid, uses } = await scene(t);
    const url = `${facilitator.url}/settle`;
    const expected = async (calls: bigint) => {
      if (broadcast) await until(() => facilitator.broadcasts.length === Number(calls));
      assert.equal(await paid(), broadcast ? calls * PRICE : 0n);
      assert.equal((await uses()).length, broadcast ? Number(calls) : 0);
      assert.equal(facilitator.broadcasts.length, broadcast ? Number(calls) : 0);
    };
    const send = async (answer: 'error' | 'garbage' | 'reset' | 'hang', timeoutMs?: number) => {
      facilitator.faults.settle({ broadcast, answer });
      return post(url, envelope(await pay(payer, offer), offer), timeoutMs);
    };
    assert.equal((await send('error')).status, 500);
    await expected(1n);
    assert.match((await send('garbage')).text, /<html>/);
    await expected(2n);
    await assert.rejects(send('reset'), (error: Error) => (error.cause as { code?: string }).code === 'ECONNRESET');
    await expected(3n);
    await assert.rejects(send('hang', 1000), { name: 'TimeoutError' });
    await expected(4n);
  });
}

test('settle faults can report something other than what happened', { skip }, async (t) => {
  const { facilitator, official, payer, offer, uses } = await scene(t);
  const settle = async () => official.settle(await pay(payer, offer), offer);
  const foreign = newNonce();
  const { faults } = facilitator;

  faults.settle(refused('invalid_exact_evm_insufficient_balance'));
  const rejected = await settle();
  assert.deepEqual(
    [rejected.success, rejected.errorReason, rejected.transaction],
    [false, 'invalid_exact_evm_insufficient_balance', ''],
  );
  faults.settle(onlyClaimed(foreign));
  const claimed = await settle();
  assert.deepEqual([claimed.success, claimed.transaction], [true, foreign]);
  assert.deepEqual(await uses(), []);

  faults.settle(settlementPending);
  const pending = await settle();
  assert.deepEqual([pending.success, pending.errorReason], [false, 'settlement_pending']);
  assert.deepEqual(await uses(), [pending.transaction]);

  faults.settle(nonceAlreadyUsed);
  const used = await settle();
  assert.deepEqual(
    [used.success, used.errorReason, used.transaction],
    [false, 'invalid_exact_evm_nonce_already_used', ''],
  );
  assert.equal((await uses()).length, 2);

  faults.settle(anotherTransaction(foreign));
  const another = await settle();
  assert.deepEqual([another.success, another.transaction], [true, foreign]);
  assert.deepEqual(await uses(), facilitator.broadcasts);
  assert.equal((await uses()).length, 3);
});

test('a redirected settle settles only for clients that follow it', { skip }, async (t) => {
  const { facilitator, official, payer, offer, uses } = await scene(t);
  const payload = await pay(payer, offer);
  facilitator.faults.settle({ broadcast: false, answer: 'redirect' });
  const { status, location } = await post(`${facilitator.url}/settle`, envelope(payload, offer));
  assert.deepEqual([status, location], [307, '/elsewhere/settle']);
  assert.deepEqual(await uses(), []);

  facilitator.faults.settle({ broadcast: false, answer: 'redirect' });
  assert.equal((await official.settle(payload, offer)).success, true);
  assert.equal((await uses()).length, 1);
  assert.deepEqual(
    facilitator.calls.map(({ redirected }) => redirected),
    [false, false, true],
  );
});

test('a refused settlement can still land later', { skip }, async (t) => {
  const { facilitator, official, payer, payee, offer, paid } = await scene(t);
  const signed = await signAuthorization(payer, { to: payee.address, value: PRICE });
  facilitator.faults.settle(refused('invalid_exact_evm_insufficient_balance'));
  assert.equal((await official.settle(payloadOf(offer, signed), offer)).success, false);
  await included(chain.client, submitAuthorization(chain.client, payee, signed));
  assert.equal(await paid(), PRICE);
});

test('reported settlements survive kill -9 of the chain', { skip }, async (t) => {
  const dataDir = `${chain.dataDir}/crash`;
  const start = async () => {
    const started = await startChain({ dataDir, blockTime: 0, detached: false });
    assert.ok(started.available);
    t.teardown(started.chain.stop);
    return { ...started.chain, dataDir, client: chainClient(started.chain.socketPath) };
  };
  const first = await start();
  const facilitator = await testFacilitator(t, first, { persist: first.persist });
  const [payer, payee] = [await wallet(first.client, 1000n), await wallet(first.client)];
  const offer = requirements(first, payee.address, PRICE);
  const official = new HTTPFacilitatorClient({ url: facilitator.url });
  const { transaction } = await official.settle(await pay(payer, offer), offer);
  process.kill(first.pid, 'SIGKILL');
  await first.stop();

  const second = await start();
  assert.deepEqual(await usesOfAuthorizations(second.client, payer.address), [transaction]);
  assert.equal(await usdcBalance(second.client, payee.address), PRICE);
});
