import assert from 'node:assert/strict';
import { test } from 'tap';
import {
  depositor,
  HELLO,
  noncesOf,
  startPrepaidGateway,
  TTS,
  withCredential,
  withHeaders,
} from '../support/prepaid.ts';

const accountOf = (address: string) => `/x402/accounts/${address}`;

test('the owner reads the balance; the nonce is not spent (R31)', async (t) => {
  const gateway = await startPrepaidGateway(t);
  const { wallet, sign } = await depositor(gateway, 1_234_567n);
  const path = accountOf(wallet.address);
  const call = await sign(path, {}, { nonce: 'read', max: 0n });
  for (let count = 0; count < 2; count += 1) {
    const { status, json, headers } = await gateway.call(path, call);
    assert.equal(status, 200);
    assert.deepEqual(json, {
      address: wallet.address.toLowerCase(),
      balanceMicroUsd: 1_234_567,
      balanceUsd: '1.234567',
      currency: 'USD',
      refundable: false,
    });
    assert.equal(headers.get('cache-control'), 'private, no-store');
  }
  assert.deepEqual(await noncesOf(gateway), []);
  assert.equal((await gateway.call(TTS, await sign(TTS, HELLO, { nonce: 'read' }))).status, 200);
  assert.equal((await gateway.call(path, call)).json.balanceMicroUsd, 1_234_369);
});

test('R31: an empty query is signed, whatever the query is; the path as it was sent', async (t) => {
  const gateway = await startPrepaidGateway(t);
  const { wallet, sign } = await depositor(gateway, 1000n);
  const lower = accountOf(wallet.address.toLowerCase());
  assert.equal((await gateway.call(`${lower}?x=1`, await sign(lower))).status, 200);
  assert.equal((await gateway.call(lower, await sign(`${lower}?x=1`, {}, { query: 'x=1' }))).status, 401);
  assert.equal((await gateway.call(accountOf(wallet.address), await sign(lower))).status, 401);
});

test("another address's credential is refused before the balance is read", async (t) => {
  const gateway = await startPrepaidGateway(t);
  const rich = await depositor(gateway, 1000n);
  const { wallet, sign } = await depositor(gateway, 1000n);
  const path = accountOf(rich.wallet.address);
  const forged = withHeaders(await sign(path), { 'x-x402-account': rich.wallet.address });
  const spoken = await sign(TTS, HELLO);
  for (const [at, call] of [
    [path, await sign(path)],
    [path, forged],
    [accountOf(wallet.address), { headers: spoken.headers ?? {} }],
    [accountOf(wallet.address), await withCredential(wallet, { ...gateway.domain, chainId: 1 }, path, {})],
  ] as const) {
    const reply = await gateway.call(at, call);
    assert.deepEqual([reply.status, reply.json.error.code], [401, 'UNAUTHORIZED']);
  }
});

test('an address that never deposited is 404 for its owner, and 401 for everybody else', async (t) => {
  const gateway = await startPrepaidGateway(t);
  const { wallet, sign } = await depositor(gateway, 0n);
  const other = await depositor(gateway, 0n);
  const path = accountOf(wallet.address);
  const own = await gateway.call(path, await sign(path));
  assert.deepEqual([own.status, own.json.error.code], [404, 'NOT_FOUND']);
  assert.equal((await gateway.call(path, await other.sign(path))).status, 401);
});

test('R30: without its five headers, or with a path that is no address, a balance read is 400', async (t) => {
  const gateway = await startPrepaidGateway(t);
  const { wallet, sign } = await depositor(gateway, 1000n);
  const path = accountOf(wallet.address);
  assert.equal((await gateway.call(path)).json.error.details.field, 'x-x402-account');
  const partial = withHeaders(await sign(path), { 'x-x402-nonce': undefined });
  assert.equal((await gateway.call(path, partial)).json.error.details.field, 'x-x402-nonce');
  for (const address of ['0x12', wallet.address.slice(2), `${wallet.address}0`, 'me']) {
    const reply = await gateway.call(accountOf(address), await sign(accountOf(address)));
    assert.deepEqual([reply.status, reply.json.error.details.field], [400, 'address'], address);
  }
  assert.equal((await gateway.call(path, await sign(path, {}, { expiry: 1n }))).status, 400);
});
