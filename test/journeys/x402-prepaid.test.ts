import assert from 'node:assert/strict';
import { test } from 'tap';
import { audit } from '../../src/ledger/audit.ts';
import { testChain, wallet } from '../support/chain.ts';
import { mineSteadily } from '../support/deposit.ts';
import type { Call } from '../support/gateway.ts';
import { domainOf, withCredential } from '../support/prepaid.ts';
import { until } from '../support/until.ts';
import { HELLO, PRICE, payFor, startX402Gateway } from '../support/x402.ts';

const { chain, skip } = await testChain();

/** A gateway, and a wallet that has deposited 100,000 micro-USD. */
async function start(t: Parameters<typeof startX402Gateway>[0]) {
  const gateway = await startX402Gateway(t, chain);
  const payer = await wallet(chain.client, 1_000_000n);
  mineSteadily(t, chain);
  const deposit: Call = { method: 'POST', json: { amountMicroUsd: 100_000 } };
  const { reply, paid } = await payFor(gateway, payer, deposit, '/x402/deposit');
  assert.equal(reply.status, 200, reply.text);
  const domain = domainOf(gateway.payTo, `${gateway.config.serviceName}-Prepaid`);
  const sign = (path: string, call: Call, terms = {}) => withCredential(payer, domain, path, call, terms);
  return { gateway, payer, domain, sign, reply, paid };
}

test('a deposit is credited once, read by its owner only, and spent', { skip }, async (t) => {
  const { gateway, payer, sign, reply, paid } = await start(t);
  assert.deepEqual([reply.json.creditedMicroUsd, reply.json.alreadyCredited], [100_000, false]);
  const again = await gateway.call('/x402/deposit', paid);
  assert.deepEqual([again.status, again.json.creditedMicroUsd, again.json.alreadyCredited], [200, 0, true]);
  const path = `/x402/accounts/${payer.address}`;
  const read = await gateway.call(path, await sign(path, {}));
  assert.deepEqual([read.status, read.json.balanceMicroUsd], [200, 100_000]);
  const other = '/x402/accounts/0xcA11bde05977b3631167028862bE2a173976CA11';
  assert.equal((await gateway.call(other, await sign(other, {}))).status, 401);
  for (const [at, call] of [
    ['/x402/tts', HELLO],
    ['/x402/tts?text=Hello+world', {}],
  ] as const) {
    const spoken = await gateway.call(at, await sign(at, call));
    assert.equal(spoken.status, 200, spoken.text.slice(0, 300));
    assert.equal(spoken.headers.get('x-x402-charged'), String(PRICE));
    assert.equal(spoken.headers.get('payment-response'), null);
  }
  const left = await gateway.call(path, await sign(path, {}));
  assert.equal(left.json.balanceMicroUsd, 100_000 - 2 * Number(PRICE));
  assert.deepEqual(await audit(gateway.db), []);
});

test('R21b: a deposit that waits for its second block is no longer part of what its payer owes', {
  skip,
}, async (t) => {
  const gateway = await startX402Gateway(t, chain);
  const payer = await wallet(chain.client, 100_000n + PRICE);
  const deposit: Call = { method: 'POST', json: { amountMicroUsd: 100_000 } };
  const deposited = payFor(gateway, payer, deposit, '/x402/deposit');
  await until(
    async () =>
      (await gateway.db.selectFrom('x402_payment').select('awaited_transaction').executeTakeFirst())
        ?.awaited_transaction != null,
  );
  const { reply } = await payFor(gateway, payer, HELLO);
  assert.equal(reply.status, 200, reply.text.slice(0, 300));
  await chain.client.mine({ blocks: 1 });
  assert.equal((await deposited).reply.status, 200);
  assert.deepEqual(await audit(gateway.db), []);
});
