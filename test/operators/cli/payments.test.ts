import assert from 'node:assert/strict';
import { sql } from 'kysely';
import { test } from 'tap';
import { testChain, wallet } from '../../support/chain.ts';
import { payUnknown } from '../../support/deposit.ts';
import { refused } from '../../support/facilitator-faults.ts';
import { operatorCommand } from '../../support/operator-command.ts';
import { rawTransaction, reorganize } from '../../support/reorganize.ts';
import { unguarded } from '../../support/unguarded.ts';
import { PRICE, payFor, startX402Gateway, timesPaid } from '../../support/x402.ts';

const { chain, skip } = await testChain();

test('payments lists payments in doubt with their state on chain and changes nothing', { skip }, async (t) => {
  const gateway = await startX402Gateway(t, chain);
  const { db, config } = gateway;
  const env = {
    DATABASE_URL: gateway.databaseUrl,
    X402_PAY_TO: gateway.payTo,
    X402_FACILITATOR_URL: gateway.facilitator.url,
    X402_RPC_URL: config.x402?.rpcUrls?.join() ?? '',
  };
  const run = (...args: string[]) => operatorCommand(env, 'payments', ...args);
  const none = await run();
  assert.deepEqual([none.code, none.out], [0, 'No payment is in doubt.\n'], none.output);

  const payers = await Promise.all([1, 2, 3, 4].map(() => wallet(chain.client, 10n * PRICE)));
  const [settled, unknown, unused, expired] = payers;
  assert.ok(settled && unknown && unused && expired);
  assert.equal((await payFor(gateway, settled)).reply.status, 200);
  await payUnknown(gateway, chain, () => payFor(gateway, unknown));
  for (const payer of [unused, expired]) {
    gateway.facilitator.faults.settle(refused('insufficient_funds'));
    assert.equal((await payFor(gateway, payer)).reply.status, 402);
  }
  await unguarded(db, async (trx) => {
    await sql`update x402_payment set valid_before = 1 where payer = ${expired.address.toLowerCase()}`.execute(trx);
  });
  const before = await db.selectFrom('x402_payment').selectAll().orderBy('id').execute();

  const listed = await run();
  assert.equal(listed.code, 0, listed.output);
  const [head = '', ...lines] = listed.out.trimEnd().split('\n');
  assert.match(head, /^id +at +age +state +purpose +micro-USD +payer +transaction +chain$/);
  assert.equal(lines.length, 3);
  const lineOf = ({ address }: { address: string }) => lines.find((line) => line.includes(address.toLowerCase())) ?? '';
  assert.match(lineOf(unknown), / \d+ (s|min) +unknown +speech +198 .* paid by 0x[0-9a-f]{64} in block \d+/);
  assert.match(
    lineOf(unused),
    / refused +speech +198 .*not used yet; it expires at 20\S+Z; refused: insufficient_funds$/,
  );
  assert.match(lineOf(expired), /not paid: the authorization expired unused/);

  const json = JSON.parse((await run('--json')).out) as { payer: string; chain: { outcome: string } | null }[];
  assert.deepEqual(
    json.map((payment) => payment.chain?.outcome),
    ['paid', 'usable', 'expired'],
  );
  const all = await run('--all', '--no-chain');
  assert.deepEqual([all.code, all.out.trimEnd().split('\n').length], [0, 5]);
  assert.doesNotMatch(all.out, /NOT CHECKED|paid by/);
  assert.equal((await run('--since', '2d', '--no-chain')).out.trimEnd().split('\n').length, 5);

  const silent = await operatorCommand({ ...env, X402_RPC_URL: 'http://127.0.0.1:1' }, 'payments');
  assert.equal(silent.code, 2, silent.output);
  assert.match(silent.out, /NOT CHECKED: /);
  const unset = await operatorCommand({ DATABASE_URL: gateway.databaseUrl }, 'payments');
  assert.equal(unset.code, 2);
  assert.match(unset.out, /NOT CHECKED: X402_PAY_TO or X402_RPC_URL is unset/);
  const wrong = await run('--since', 'yesterday');
  assert.equal(wrong.code, 78, wrong.output);
  assert.match(wrong.err, /speechgate payments/);
  assert.deepEqual(await db.selectFrom('x402_payment').selectAll().orderBy('id').execute(), before);
  assert.equal(await timesPaid(chain, unused), 0);
});

test('audit and report accept a transfer that a reorganization moved within its block', {
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

  const audited = await operatorCommand(env, 'audit', '--external');
  assert.deepEqual([audited.code, audited.output.match(/BROKEN|NOT CHECKED/g)], [0, null], audited.output);
  const today = new Date().toISOString().slice(0, 10);
  const { out } = await operatorCommand(env, 'report', '--from', today, '--json');
  const { outside, ledger, differences } = JSON.parse(out).chain;
  assert.deepEqual([outside, ledger, differences], [2 * Number(PRICE), 2 * Number(PRICE), []]);
});
