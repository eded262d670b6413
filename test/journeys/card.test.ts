import assert from 'node:assert/strict';
import test from 'node:test';
import { audit } from '../../src/ledger/audit.ts';
import { startGateway } from '../support/gateway.ts';
import { startStubUpstream } from '../support/stub-upstream.ts';

test('R3: a request costs ceil(characters x rate), 198 micro-USD for "Hello world"', async (t) => {
  const upstream = await startStubUpstream();
  t.after(() => upstream.close());
  const gateway = await startGateway(t, { SPEECH_BASE_URL: upstream.url });
  const account = await gateway.fund(500);
  const reply = await gateway.call('/tts', {
    method: 'POST',
    json: { text: '  Hello world\n' },
    headers: { 'x-credit-account': account },
  });
  assert.equal(reply.status, 200);
  assert.equal(reply.headers.get('content-type'), 'audio/mpeg');
  assert.equal(reply.headers.get('x-credit-account'), account);
  assert.equal(reply.headers.get('x-credit-balance'), String(5_000_000 - 198));
  assert.equal(await gateway.balance(account), 4_999_802n);
  assert.equal(upstream.requests.length, 1);
  assert.deepEqual(await audit(gateway.db), []);
});

test('50 parallel requests on an account that can pay for 20: exactly 20 are served', async (t) => {
  const upstream = await startStubUpstream();
  t.after(() => upstream.close());
  const gateway = await startGateway(t, { SPEECH_BASE_URL: upstream.url });
  const account = await gateway.fund(500);
  const text = 'x'.repeat(4096);
  const price = 4096n * 36n;
  const drain = 5_000_000n - 20n * price;
  await gateway.db
    .updateTable('account')
    .set({ balance_micro_usd: 20n * price })
    .where('id', '=', account)
    .execute();
  const replies = await Promise.all(
    Array.from({ length: 50 }, () =>
      gateway.call('/tts', {
        method: 'POST',
        json: { text, model: 'provider-a/tts-1-hd' },
        headers: { 'x-credit-account': account },
      }),
    ),
  );
  assert.equal(replies.filter((reply) => reply.status === 200).length, 20);
  assert.equal(replies.filter((reply) => reply.status === 402).length, 30);
  assert.equal(await gateway.balance(account), 0n);
  await gateway.db.updateTable('account').set({ balance_micro_usd: drain }).where('id', '=', account).execute();
  assert.deepEqual(await audit(gateway.db), []);
});
