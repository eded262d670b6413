import assert from 'node:assert/strict';
import type { PaymentPayload } from '@x402/core/types';
import { sql } from 'kysely';
import { test } from 'tap';
import { audit } from '../../src/ledger/audit.ts';
import { refused } from '../../src/sandbox/facilitator/faults.ts';
import { bookSettlement } from '../../src/x402/book-settlement.ts';
import { testChain, wallet } from '../support/chain.ts';
import type { Call } from '../support/gateway.ts';
import { addDoubtfulPayment } from '../support/prepaid.ts';
import { Drip, mp3, silentMp3 } from '../support/stub-upstream.ts';
import { until } from '../support/until.ts';
import {
  challengeOf,
  HELLO,
  PRICE,
  payFor,
  sign,
  startX402Gateway,
  timesPaid,
  withPayment,
  type X402Gateway,
} from '../support/x402.ts';

const { chain, skip } = await testChain();

const countOf = (replies: { status: number }[], status: number) =>
  replies.filter((reply) => reply.status === status).length;

/** Holds the upstream's answer back until this many requests to the gateway have been answered. */
function answerWhen(gateway: X402Gateway, condition: () => boolean) {
  gateway.upstream.mode = async (request, response) => {
    await until(condition);
    mp3()(request, response);
  };
}

async function callAll(gateway: X402Gateway, calls: Call[]) {
  let answered = 0;
  answerWhen(gateway, () => answered >= calls.length - 1);
  return Promise.all(
    calls.map(async (call) => {
      const reply = await gateway.call('/x402/tts', call);
      answered += 1;
      return reply;
    }),
  );
}

test('20 identical paid requests at once: one is served, 19 are pending; one settlement', { skip }, async (t) => {
  const gateway = await startX402Gateway(t, chain);
  const payer = await wallet(chain.client, 10n * PRICE);
  const paid = withPayment(HELLO, await sign(payer, await challengeOf(gateway, '/x402/tts', HELLO)));
  const replies = await callAll(gateway, Array(20).fill(paid));
  assert.equal(countOf(replies, 200), 1);
  const pending = replies.filter(({ status }) => status === 409);
  assert.equal(pending.length, 19);
  assert.ok(pending.every(({ json }) => json.error.code === 'PAYMENT_REPLAY_PENDING'));
  assert.equal(await timesPaid(chain, payer), 1);
  assert.equal(gateway.upstream.requests.length, 1);
  assert.deepEqual(await audit(gateway.db), []);
});

test('R22: two identifiers on one authorization at once: one settlement and a 409', { skip }, async (t) => {
  const gateway = await startX402Gateway(t, chain);
  const payer = await wallet(chain.client, 10n * PRICE);
  const challenge = await challengeOf(gateway, '/x402/tts', HELLO);
  const first = await sign(payer, challenge);
  const second: PaymentPayload = { ...(await sign(payer, challenge)), payload: first.payload };
  const replies = await callAll(gateway, [withPayment(HELLO, first), withPayment(HELLO, second)]);
  assert.equal(countOf(replies, 200), 1);
  const conflict = replies.find(({ status }) => status === 409);
  assert.equal(conflict?.json.error.code, 'PAYMENT_IDENTIFIER_CONFLICT');
  assert.equal(await timesPaid(chain, payer), 1);
  assert.equal(gateway.upstream.requests.length, 1);
});

test('R21b: 50 authorizations at once from a wallet that holds one price: one synthesis', { skip }, async (t) => {
  const gateway = await startX402Gateway(t, chain);
  const payer = await wallet(chain.client, PRICE);
  const challenge = await challengeOf(gateway, '/x402/tts', HELLO);
  const payloads = await Promise.all(Array.from({ length: 50 }, () => sign(payer, challenge)));
  const replies = await callAll(
    gateway,
    payloads.map((payload) => withPayment(HELLO, payload)),
  );
  assert.equal(countOf(replies, 200), 1);
  assert.equal(countOf(replies, 402), 49);
  assert.equal(gateway.upstream.requests.length, 1);
  assert.equal(await timesPaid(chain, payer), 1);
  assert.deepEqual(await audit(gateway.db), []);
});

test('R21b: a wallet that holds three prices is served three times at once', { skip }, async (t) => {
  const gateway = await startX402Gateway(t, chain);
  const payer = await wallet(chain.client, 3n * PRICE);
  const challenge = await challengeOf(gateway, '/x402/tts', HELLO);
  const payloads = await Promise.all(Array.from({ length: 3 }, () => sign(payer, challenge)));
  const replies = await Promise.all(payloads.map((payload) => gateway.call('/x402/tts', withPayment(HELLO, payload))));
  assert.deepEqual(
    replies.map(({ status }) => status),
    [200, 200, 200],
  );
  assert.equal(await gateway.revenue(), 3n * PRICE);
});

test('R21b: a payment that has left the wallet, and is not recorded yet, is not asked of it a second time', {
  skip,
}, async (t) => {
  const gateway = await startX402Gateway(t, chain);
  const payer = await wallet(chain.client, PRICE);
  const earlier = await addDoubtfulPayment(gateway.db, payer.address.toLowerCase(), PRICE);
  await sql`update x402_payment set state = 'settling', lease_until = now() + interval '1 hour'`.execute(gateway.db);
  const paid = payFor(gateway, payer);
  await until(() => gateway.facilitator.calls.length > 0);
  await bookSettlement(gateway.db, earlier, { transaction: `0x${'1'.repeat(64)}`, logIndex: 0 }, 'receipt');
  assert.equal((await paid).reply.status, 200);
});

test('R21b: after a failed settlement a payer has one request at a time, and others as many as they like', {
  skip,
}, async (t) => {
  const gateway = await startX402Gateway(t, chain);
  const payer = await wallet(chain.client, 10n * PRICE);
  gateway.facilitator.faults.settle(refused('insufficient_funds'));
  assert.equal((await payFor(gateway, payer)).reply.status, 402);

  const drip = new Drip();
  gateway.upstream.mode = drip.mode;
  const first = payFor(gateway, payer);
  await drip.opened;
  const second = await payFor(gateway, payer);
  assert.equal(second.reply.status, 429);
  assert.equal(second.reply.json.error.code, 'RATE_LIMITED');
  gateway.upstream.mode = mp3();
  assert.equal((await payFor(gateway, await wallet(chain.client, PRICE))).reply.status, 200);
  await drip.write(silentMp3(500));
  drip.end();
  assert.equal((await first).reply.status, 200);
  assert.equal((await gateway.call('/x402/tts', second.paid)).status, 200);
});

test('the same authorization at another amount, path, query or body is refused before any call', {
  skip,
}, async (t) => {
  const gateway = await startX402Gateway(t, chain);
  const payer = await wallet(chain.client, 10n * PRICE);
  const { reply, payload } = await payFor(gateway, payer);
  assert.equal(reply.status, 200);
  const calls = gateway.facilitator.calls.length;
  const longer: Call = { method: 'POST', json: { text: 'Hello world, hello' } };
  const other = await sign(payer, await challengeOf(gateway, '/x402/tts', longer));
  const attempts: [string, Call, unknown, number][] = [
    ['/x402/tts', { method: 'POST', json: { text: 'Hello wurld' } }, payload, 409],
    [
      '/x402/tts',
      { method: 'POST', body: '{"text": "Hello world"}', headers: { 'content-type': 'application/json' } },
      payload,
      409,
    ],
    ['/x402/tts?text=Hello%20world', {}, payload, 409],
    ['/x402/tts?x=1', HELLO, payload, 409],
    ['/x402/tts', longer, payload, 409],
    ['/x402/tts', longer, { ...other, payload: payload.payload }, 402],
    ['/x402/tts', longer, { ...other, accepted: payload.accepted }, 402],
  ];
  for (const [path, call, sent, status] of attempts) {
    const answer = await gateway.call(path, withPayment(call, sent));
    assert.equal(answer.status, status, `${path} ${JSON.stringify(call)}: ${answer.text}`);
  }
  assert.equal(gateway.facilitator.calls.length, calls);
  assert.equal(await timesPaid(chain, payer), 1);
});
