import type { PaymentPayload } from '@x402/core/types';
import { sql } from 'kysely';
import { test } from 'tap';
import { testChain, wallet } from '../support/chain.ts';
import {
  assertCredited,
  awaitedTransaction,
  DEPOSIT,
  DEPOSIT_PATH,
  depositOf,
  mineSteadily,
  type Pending,
  payDeposit,
  sendDeposit,
  signDeposit,
  told,
} from '../support/deposit.ts';
import type { Call, Reply } from '../support/gateway.ts';
import { unguarded } from '../support/unguarded.ts';
import { until } from '../support/until.ts';
import { challengeOf, payFor, sign, startX402Gateway, timesPaid, withPayment } from '../support/x402.ts';

const { chain, skip } = await testChain();
const PENDING = [409, 'PAYMENT_REPLAY_PENDING'];
const CONFLICT = [409, 'PAYMENT_IDENTIFIER_CONFLICT'];

/** A text whose price is that of a deposit. */
const SPEECH: Call = { method: 'POST', json: { text: 'a'.repeat(2778), model: 'provider-a/tts-1-hd' } };
const SPEECH_PRICE = 2778 * 36;
const LONG_AGO = sql`update x402_payment set settled_at = now() - interval '10 days'`;

const transactionsOf = (replies: Reply[]) => new Set(replies.map(({ headers }) => headers.get('payment-response')));

test('R22: a used identifier or authorization is always 409 for another request', { skip }, async (t) => {
  const gateway = await startX402Gateway(t, chain);
  const payer = await wallet(chain.client, 1_000_000n);
  mineSteadily(t, chain);
  const { reply, payload, paid } = await payDeposit(gateway, payer);
  t.strictSame(told(reply), [200, DEPOSIT, false]);
  const calls = gateway.facilitator.calls.length;
  const same = await signDeposit(gateway, payer);
  const other = await signDeposit(gateway, payer, 2 * DEPOSIT);
  const spaced: Call = {
    method: 'POST',
    body: `{"amountMicroUsd": ${DEPOSIT}}`,
    headers: { 'content-type': 'application/json' },
  };
  const misuses: [string, Call, unknown][] = [
    [DEPOSIT_PATH, depositOf(2 * DEPOSIT), payload],
    [DEPOSIT_PATH, spaced, payload],
    [`${DEPOSIT_PATH}?again=1`, depositOf(DEPOSIT), payload],
    [DEPOSIT_PATH, depositOf(2 * DEPOSIT), { ...other, extensions: payload.extensions }],
    [DEPOSIT_PATH, depositOf(DEPOSIT), { ...same, extensions: payload.extensions }],
    [DEPOSIT_PATH, depositOf(DEPOSIT), { ...payload, note: 'another payload' }],
    [DEPOSIT_PATH, depositOf(DEPOSIT), { ...same, payload: payload.payload }],
  ];
  for (const when of ['now', 'long after']) {
    for (const [path, call, misuse] of misuses) {
      const answer = await gateway.call(path, withPayment(call, misuse));
      t.strictSame(told(answer), CONFLICT, `${when}: ${path} ${JSON.stringify(call)}`);
    }
    await unguarded(gateway.db, (db) => LONG_AGO.execute(db));
  }
  t.strictSame(told(await gateway.call(DEPOSIT_PATH, paid)), [200, 0, true]);
  t.equal(gateway.facilitator.calls.length, calls);
  t.equal(await timesPaid(chain, payer), 1);
  await assertCredited(gateway, payer, [DEPOSIT]);
});

test('R22: a payment for speech is never accepted as a deposit', { skip }, async (t) => {
  const gateway = await startX402Gateway(t, chain);
  const payer = await wallet(chain.client, 1_000_000n);
  const { reply, payload } = await payFor(gateway, payer, SPEECH);
  t.equal(reply.status, 200, reply.text.slice(0, 300));
  const calls = gateway.facilitator.calls.length;
  const fresh = await signDeposit(gateway, payer, SPEECH_PRICE);
  t.strictSame(fresh.accepted, payload.accepted, 'an offer of both requests');
  for (const when of ['now', 'long after']) {
    for (const misuse of [payload, { ...fresh, payload: payload.payload }]) {
      const answer = await gateway.call(DEPOSIT_PATH, withPayment(depositOf(SPEECH_PRICE), misuse));
      t.strictSame(told(answer), CONFLICT, when);
    }
    await unguarded(gateway.db, (db) => LONG_AGO.execute(db));
  }
  t.equal(gateway.facilitator.calls.length, calls);
  t.equal(await timesPaid(chain, payer), 1);
  await assertCredited(gateway, payer, []);
});

test('R22: a deposit is never accepted as a payment for speech', { skip }, async (t) => {
  const gateway = await startX402Gateway(t, chain);
  const payer = await wallet(chain.client, 1_000_000n);
  mineSteadily(t, chain);
  const { reply, payload } = await payDeposit(gateway, payer, SPEECH_PRICE);
  t.equal(reply.status, 200, reply.text);
  const calls = gateway.facilitator.calls.length;
  const fresh = await sign(payer, await challengeOf(gateway, '/x402/tts', SPEECH));
  for (const when of ['now', 'long after']) {
    for (const misuse of [payload, { ...fresh, payload: payload.payload }]) {
      const answer = await gateway.call('/x402/tts', withPayment(SPEECH, misuse));
      t.strictSame([answer.status, answer.json.error.code], CONFLICT, when);
    }
    await unguarded(gateway.db, (db) => LONG_AGO.execute(db));
  }
  t.equal(gateway.facilitator.calls.length, calls);
  t.equal(gateway.upstream.requests.length, 0);
  await assertCredited(gateway, payer, [SPEECH_PRICE]);
});

test('of 10 identical deposits at once, one is credited and 9 are pending', { skip }, async (t) => {
  const gateway = await startX402Gateway(t, chain);
  const payer = await wallet(chain.client, 1_000_000n);
  const payload = await signDeposit(gateway, payer);
  const paid = withPayment(depositOf(DEPOSIT), payload);
  const all = Array.from({ length: 10 }, () => sendDeposit(gateway, paid));
  await awaitedTransaction(gateway, payload);
  await until(() => all.filter(({ isAnswered }) => isAnswered()).length === 9);
  await chain.client.mine({ blocks: 1 });
  const replies = await Promise.all(all.map(({ reply }) => reply));
  t.strictSame(replies.filter(({ status }) => status === 200).map(told), [[200, DEPOSIT, false]]);
  for (const pending of replies.filter(({ status }) => status !== 200)) t.strictSame(told(pending), PENDING);
  t.strictSame(
    gateway.facilitator.calls.map(({ endpoint }) => endpoint),
    ['verify', 'settle'],
  );
  await assertCredited(gateway, payer, [DEPOSIT]);
});

test('R22: of two identifiers for one authorization, one is credited and one is 409', { skip }, async (t) => {
  const gateway = await startX402Gateway(t, chain);
  const payer = await wallet(chain.client, 1_000_000n);
  const first = await signDeposit(gateway, payer);
  const second = { ...(await signDeposit(gateway, payer)), payload: first.payload };
  mineSteadily(t, chain);
  const replies = await Promise.all(
    [first, second].map((payload) => gateway.call(DEPOSIT_PATH, withPayment(depositOf(DEPOSIT), payload))),
  );
  const answers = replies.map(told).sort(([one], [other]) => Number(one) - Number(other));
  t.strictSame(answers, [[200, DEPOSIT, false], CONFLICT]);
  t.equal(await timesPaid(chain, payer), 1);
  await assertCredited(gateway, payer, [DEPOSIT]);
});

test('R21b: two equal deposits that wait at once are each credited, and counted once', { skip }, async (t) => {
  const gateway = await startX402Gateway(t, chain);
  const payer = await wallet(chain.client, BigInt(2 * DEPOSIT));
  const payloads = [await signDeposit(gateway, payer), await signDeposit(gateway, payer)];
  const calls = payloads.map((payload) => withPayment(depositOf(DEPOSIT), payload));
  const both: Pending[] = [];
  for (const [at, call] of calls.entries()) {
    both.push(sendDeposit(gateway, call));
    await awaitedTransaction(gateway, payloads[at] as PaymentPayload);
  }
  await chain.client.mine({ blocks: 1 });
  const replies = await Promise.all(both.map(({ reply }) => reply));
  for (const reply of replies) t.strictSame(told(reply), [200, DEPOSIT, false]);
  t.equal(transactionsOf(replies).size, 2);
  for (const call of calls) t.strictSame(told(await gateway.call(DEPOSIT_PATH, call)), [200, 0, true]);
  t.equal(await timesPaid(chain, payer), 2);
  t.equal(await gateway.revenue(), BigInt(2 * DEPOSIT));
  await assertCredited(gateway, payer, [DEPOSIT, DEPOSIT]);
});
