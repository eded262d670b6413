import assert from 'node:assert/strict';
import { sql } from 'kysely';
import { test } from 'tap';
import { fund } from '../../../src/sandbox/chain/fund.ts';
import { followProcessor, sell } from '../../payments/top-up/refunded.ts';
import { testChain, wallet } from '../../support/chain.ts';
import { testCheckout } from '../../support/checkout.ts';
import { mineSteadily, payDeposit } from '../../support/deposit.ts';
import { operatorCommand } from '../../support/operator-command.ts';
import { domainOf, HELLO, TTS, withCredential } from '../../support/prepaid.ts';
import { payFor, startX402Gateway } from '../../support/x402.ts';

const { chain, skip } = await testChain();

const today = () => new Date().toISOString().slice(0, 10);

test('speechgate report prints sales and debts and compares processor and chain', { skip }, async (t) => {
  const checkout = await testCheckout(t);
  const gateway = await startX402Gateway(t, chain, checkout.env);
  mineSteadily(t, chain);
  const env = {
    ...{ ...checkout.env, DATABASE_URL: gateway.databaseUrl, X402_PAY_TO: gateway.payTo },
    ...{ X402_FACILITATOR_URL: gateway.facilitator.url, X402_RPC_URL: gateway.config.x402?.rpcUrls?.join() ?? '' },
  };
  // Until the end of the day: the processor dates by the second, and what is of this second is not before now.
  const report = (...args: string[]) => operatorCommand(env, 'report', '--from', today(), '--to', today(), ...args);

  const first = await sell(gateway, checkout, 700);
  const second = await sell(gateway, checkout, 500);
  const headers = { 'x-credit-account': first.account };
  for (const _ of [1, 2]) assert.equal((await gateway.call('/tts', { ...HELLO, headers })).status, 200);
  const refund = await checkout.refund({ session: second.session, amountCents: 200 });
  await followProcessor(gateway);
  const payer = await wallet(chain.client, 1_000_000n);
  assert.equal((await payFor(gateway, payer)).reply.status, 200);
  assert.equal((await payDeposit(gateway, payer)).reply.status, 200);
  const spoken = await gateway.call(TTS, await withCredential(payer, domainOf(gateway.payTo), TTS, HELLO));
  assert.equal(spoken.status, 200);

  const { code, out, err } = await report('--by', 'flow', '--json');
  assert.equal(code, 0, err + out);
  const told = JSON.parse(out);
  const flows = told.sales.map((row: { group: string; requests: number; revenue: number }) => [
    ...[row.group, row.requests, row.revenue],
  ]);
  assert.deepEqual(flows, [
    ['card', 2, 396],
    ['direct', 1, 198],
    ['prepaid', 1, 198],
  ]);
  assert.deepEqual([told.total.requests, told.total.revenue, told.total.characters], [4, 792, 44]);
  assert.equal(told.total.margin, told.total.revenue - told.total.upstreamCost);
  assert.deepEqual(
    [told.money.bought, told.money.refunded, told.money.deposited, told.money.paidDirectly],
    [12_000_000, 2_000_000, 100_000, 198],
  );
  assert.deepEqual(told.liability, {
    ...{ cardBalances: 10_000_000 - 396, prepaidBalances: 100_000 - 198, held: 0, debts: 0 },
  });
  assert.deepEqual(
    [told.processor.outside, told.processor.ledger, told.processor.differences],
    [10_000_000, 10_000_000, []],
  );
  assert.deepEqual([told.chain.outside, told.chain.ledger, told.chain.differences], [100_198, 100_198, []]);

  // What others sent is no payment, and what is new at the processor is on its way.
  await fund(chain.client, gateway.payTo, { usdc: 7n });
  const dispute = await checkout.openDispute({ session: first.session });
  const explained = await report();
  assert.equal(explained.code, 0, explained.output);
  assert.match(explained.out, /^ {2}0\.000007 {2}transfer 0x[0-9a-f]{64}: it was sent without an authorization/m);
  assert.match(explained.out, new RegExp(`^ {2}-7\\.000000 {2}dispute ${dispute.id}: it is new at the processor`, 'm'));
  assert.match(explained.out, /^total +4 +0 +44 +0\.000792 /m);

  await sql`update processor_list set read_until = now()`.execute(gateway.db);
  const broken = await report();
  assert.equal(broken.code, 1, broken.output);
  assert.match(broken.out, new RegExp(`dispute ${dispute.id}: NOT EXPLAINED`));
  assert.doesNotMatch(broken.out, new RegExp(refund.id), 'what agrees is not listed');

  const csv = await report('--by', 'day', '--csv');
  assert.deepEqual(
    csv.out
      .trim()
      .split('\n')
      .map((line) => line.split(',').slice(0, 5).join()),
    ['group,requests,failed,characters,revenue', `${today()},4,0,44,792`, 'total,4,0,44,792'],
  );
  const january = ['--from', '2026-01-01', '--to', '2026-01-31'];
  const before = await operatorCommand(env, 'report', ...january, '--json', '--by', 'model');
  assert.deepEqual(
    [before.code, JSON.parse(before.out).sales, JSON.parse(before.out).liability.cardBalances],
    [0, [], 0],
  );
  const unasked = await operatorCommand({ DATABASE_URL: gateway.databaseUrl }, 'report', '--from', today());
  assert.deepEqual([unasked.code, unasked.out.match(/NOT CHECKED/g)?.length], [2, 2], unasked.output);
});

test('speechgate report refuses an invalid period or group', async () => {
  for (const [args, rule] of [
    [[], /needs --from/],
    [['--from', '2026-02-30'], /take a day such as/],
    [['--from', '2026-03-02', '--to', '2026-03-01'], /is not before/],
    [['--from', '2026-03-01', '--by', 'moon'], /--by takes one of day, flow, model, upstream/],
  ] as const) {
    const { code, err } = await operatorCommand({}, 'report', ...args);
    assert.equal(code, 78);
    assert.match(err, rule);
  }
});
