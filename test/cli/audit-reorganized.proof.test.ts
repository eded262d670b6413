import assert from 'node:assert/strict';
import { test } from 'tap';
import { testChain, wallet } from '../support/chain.ts';
import { rawTransaction, reorganize } from '../support/reorganize.ts';
import { speechgate } from '../support/speechgate.ts';
import { PRICE, payFor, startX402Gateway } from '../support/x402.ts';

const { chain, skip } = await testChain();

test('a reorganisation that moves a paid transfer within its block is no fault to audit --external and report', {
  skip,
}, async (t) => {
  const gateway = await startX402Gateway(t, chain);
  const { config, payTo, facilitator } = gateway;
  const env = {
    DATABASE_URL: gateway.databaseUrl,
    X402_PAY_TO: payTo,
    X402_FACILITATOR_URL: facilitator.url,
    X402_RPC_URL: config.x402?.rpcUrls?.join() ?? '',
  };
  for (const payer of [await wallet(chain.client, PRICE), await wallet(chain.client, PRICE)]) {
    assert.equal((await payFor(gateway, payer)).reply.status, 200);
  }
  const before = await gateway.db.selectFrom('x402_payment').select('log_index').orderBy('id').execute();

  const sent = await Promise.all(facilitator.broadcasts.map((hash) => rawTransaction(chain.client, hash as never)));
  await reorganize(chain.client, 2, sent);
  await chain.client.mine({ blocks: 3 });
  const [, second] = facilitator.broadcasts;
  const { logs } = await chain.client.getTransactionReceipt({ hash: second as never });
  assert.ok(!logs.some(({ logIndex }) => logIndex === before[1]?.log_index), 'it is at another place now');

  const audited = await speechgate(env, 'audit', '--external');
  assert.deepEqual([audited.code, audited.output.match(/BROKEN|NOT ASKED/g)], [0, null], audited.output);
  const today = new Date().toISOString().slice(0, 10);
  const { out } = await speechgate(env, 'report', '--from', today, '--json');
  const { outside, ledger, differences } = JSON.parse(out).chain;
  assert.deepEqual([outside, ledger, differences], [2 * Number(PRICE), 2 * Number(PRICE), []]);
});
