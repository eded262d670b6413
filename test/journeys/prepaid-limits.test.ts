import assert from 'node:assert/strict';
import { test } from 'tap';
import type { Call, Reply } from '../support/gateway.ts';
import { depositor, HELLO, startPrepaidGateway, TTS, withCredential, withHeaders } from '../support/prepaid.ts';
import { openAiError } from '../support/stub-upstream.ts';

const remaining = ({ headers }: Reply) => headers.get('x-ratelimit-remaining');

test('R48: verified prepaid requests take no slot, whatever becomes of them', async (t) => {
  const gateway = await startPrepaidGateway(t, { RATE_LIMIT_MAX: '2' });
  const { sign } = await depositor(gateway, 1000n);
  const repeated = await sign(TTS, HELLO);
  for (const [call, status] of [
    [repeated, 200],
    [repeated, 409],
    [await sign(TTS, HELLO, { max: 1n }), 402],
    [await sign(TTS, { method: 'POST', json: { text: 'a'.repeat(4000) } }), 402],
    [await sign(TTS, HELLO), 200],
  ] as const) {
    const reply = await gateway.call(TTS, call);
    assert.deepEqual([reply.status, remaining(reply)], [status, null]);
  }
  gateway.upstream.mode = openAiError(500);
  assert.equal(remaining(await gateway.call(TTS, await sign(TTS, HELLO))), null);
});

test('R48: a failed credential costs its address a slot, at each endpoint, and then it is 429', async (t) => {
  const gateway = await startPrepaidGateway(t, { RATE_LIMIT_MAX: '5' });
  const { wallet, sign, balance } = await depositor(gateway, 1000n);
  const stranger = await depositor(gateway, 0n);
  const own = `/x402/accounts/${wallet.address}`;
  const unknown = `/x402/accounts/${stranger.wallet.address}`;
  const foreign = { ...gateway.domain, chainId: 1 };
  for (const [path, call, status, left] of [
    [TTS, await withCredential(wallet, foreign, TTS, HELLO), 401, '4'],
    [own, await withCredential(wallet, foreign, own, {}), 401, '3'],
    [TTS, await sign(TTS, HELLO, { expiry: 1n }), 400, '2'],
    [TTS, await stranger.sign(TTS, HELLO), 402, '1'],
    [unknown, await stranger.sign(unknown), 404, '0'],
    [TTS, await withCredential(wallet, foreign, TTS, HELLO), 429, '0'],
    [own, await withCredential(wallet, foreign, own, {}), 429, '0'],
    [TTS, await stranger.sign(TTS, HELLO), 429, '0'],
    [unknown, await stranger.sign(unknown), 429, '0'],
  ] as const) {
    const reply = await gateway.call(path, call);
    assert.deepEqual([reply.status, remaining(reply)], [status, left]);
    assert.equal(reply.headers.get('x-ratelimit-scope'), 'ip');
  }
  assert.equal((await gateway.call(TTS, await sign(TTS, HELLO))).status, 200, 'whoever can sign is served');
  assert.equal((await gateway.call(own, await sign(own))).status, 200);
  assert.equal(await balance(), 802n);
});

test('the edge counts neither verified prepaid requests nor refuses them; failed and malformed ones it does', async (t) => {
  const gateway = await startPrepaidGateway(t, { EDGE_RATE_LIMIT_MAX: '3', TRUST_PROXY: '127.0.0.0/8' });
  const { wallet, sign } = await depositor(gateway, 10_000n);
  const stranger = await depositor(gateway, 0n);
  const own = `/x402/accounts/${wallet.address}`;
  const get = `${TTS}?text=Hello`;
  let clients = 0;
  /** Sends as a new client that has used up its minute. */
  const beyond = async (path: string, call: Call) => {
    const address = { 'x-forwarded-for': `192.0.2.${++clients}` };
    for (const used of ['/', '/tts/models', '/docs']) {
      assert.equal((await gateway.call(used, { headers: address })).status, 200, used);
    }
    const { status, headers } = await gateway.call(path, withHeaders(call, address));
    return [status, headers.get('x-ratelimit-scope')];
  };
  const refused = [429, 'edge'];
  assert.deepEqual(await beyond('/', {}), refused);
  assert.deepEqual(await beyond(own, await sign(own)), refused, 'balance reads meet the edge (R48)');
  assert.deepEqual(await beyond(TTS, HELLO), refused);
  assert.deepEqual(
    await beyond(TTS, await withCredential(wallet, { ...gateway.domain, chainId: 1 }, TTS, HELLO)),
    refused,
  );
  assert.deepEqual(await beyond(TTS, await stranger.sign(TTS, HELLO)), refused);
  assert.deepEqual(await beyond(TTS, withHeaders(await sign(TTS, HELLO), { 'x-x402-nonce': undefined })), refused);
  assert.deepEqual(await beyond(TTS, { ...(await sign(TTS, HELLO)), json: { text: '' } }), refused);
  assert.deepEqual(await beyond(TTS, withHeaders(await sign(TTS, HELLO), { 'content-type': 'text/plain' })), refused);
  assert.deepEqual(await beyond(get, withHeaders(await sign(get), { 'payment-signature': 'e30=' })), refused);
  const windows = await gateway.db.selectFrom('rate_window').select('key').execute();
  assert.deepEqual(windows, [], 'what the edge refuses takes no slot of its address');
  assert.deepEqual(await beyond(TTS, await sign(TTS, HELLO)), [200, null], 'a verified one is served all the same');

  for (let count = 0; count < 10; count += 1) {
    assert.equal((await gateway.call(TTS, await sign(TTS, HELLO))).status, 200, 'none of these is counted');
  }
  for (const path of ['/', '/tts/models', '/docs']) assert.equal((await gateway.call(path)).status, 200, path);
  assert.equal((await gateway.call('/')).status, 429);
  const repeated = await sign(get);
  const statuses = [];
  for (let count = 0; count < 3; count += 1) statuses.push((await gateway.call(get, repeated)).status);
  assert.deepEqual(statuses, [200, 409, 429], 'a replay that was told so is counted, and refused, as any other');
  assert.equal((await gateway.call(TTS, await sign(TTS, HELLO))).status, 429, 'and nothing more is looked at');
});
