import assert from 'node:assert/strict';
import test from 'node:test';
import { wrapFetchWithPayment } from '@x402/fetch';
import { audit } from '../../src/ledger/audit.ts';
import { usdcBalance } from '../../src/sandbox/chain/fund.ts';
import { testChain, wallet } from '../support/chain.ts';
import { HELLO, officialClient, PRICE, payFor, startX402Gateway, timesPaid } from '../support/x402.ts';

const { chain, skip } = await testChain();

test('the official client pays POST and GET; the payee has on the chain what the ledger says', { skip }, async (t) => {
  const gateway = await startX402Gateway(t, chain);
  const payer = await wallet(chain.client, 10_000n);
  const pay = wrapFetchWithPayment(fetch, officialClient(payer));
  const post = await pay(`${gateway.url}/x402/tts`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ text: 'Hello world' }),
  });
  assert.equal(post.status, 200, await post.clone().text());
  assert.equal(post.headers.get('content-type'), 'audio/mpeg');
  assert.equal(post.headers.get('x-idempotent-replay'), 'false');
  assert.equal(post.headers.get('cache-control'), 'private, no-store');
  const get = await wrapFetchWithPayment(fetch, officialClient(payer))(`${gateway.url}/x402/tts?text=Hello%20world`);
  assert.equal(get.status, 200, await get.clone().text());
  assert.equal(await gateway.revenue(), 2n * PRICE);
  assert.equal(await usdcBalance(chain.client, payer.address), 10_000n - 2n * PRICE);
  assert.deepEqual(await audit(gateway.db), []);
});

test('R22: an exact replay gets the same bytes and receipt, without a facilitator call', { skip }, async (t) => {
  const gateway = await startX402Gateway(t, chain);
  const payer = await wallet(chain.client, 10_000n);
  const { reply, paid } = await payFor(gateway, payer);
  assert.equal(reply.status, 200, reply.text.slice(0, 500));
  const calls = gateway.facilitator.calls.length;
  const replay = await gateway.call('/x402/tts', paid);
  assert.equal(replay.status, 200);
  assert.ok(replay.bytes.equals(reply.bytes));
  assert.equal(replay.headers.get('payment-response'), reply.headers.get('payment-response'));
  assert.equal(replay.headers.get('x-payment-identifier'), reply.headers.get('x-payment-identifier'));
  assert.equal(replay.headers.get('x-idempotent-replay'), 'true');
  assert.equal(gateway.facilitator.calls.length, calls);
  assert.equal(await timesPaid(chain, payer), 1);
  assert.equal(gateway.upstream.requests.length, 1);
  void HELLO;
});
