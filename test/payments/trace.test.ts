import assert from 'node:assert/strict';
import { test } from 'tap';
import { audit } from '../../src/ledger/audit.ts';
import { refused } from '../../src/sandbox/facilitator/faults.ts';
import { testChain, wallet } from '../support/chain.ts';
import { DEPOSIT, mineSteadily, payDeposit, payUnknown } from '../support/deposit.ts';
import { PRICE, payFor, startX402Gateway, type X402Gateway } from '../support/x402.ts';

const { chain, skip } = await testChain();

const payment = ({ db }: X402Gateway) =>
  db.selectFrom('x402_payment').select(['id', 'trace_id']).executeTakeFirstOrThrow();

async function sample(gateway: X402Gateway, name: string): Promise<number> {
  const { body } = await gateway.app.admin.inject({ url: '/metrics' });
  const line = body.split('\n').find((candidate) => candidate.startsWith(`${name} `));
  return Number(line?.slice(name.length + 1) ?? 0);
}

for (const [flow, amount] of [
  ['direct', PRICE],
  ['deposit', BigInt(DEPOSIT)],
] as const) {
  test(`${flow}: the payment and its transfer keep the trace id of their request, and are counted`, {
    skip,
  }, async (t) => {
    const gateway = await startX402Gateway(t, chain);
    if (flow === 'deposit') mineSteadily(t, chain);
    const payer = await wallet(chain.client, 1_000_000n);
    const { reply } = await (flow === 'direct' ? payFor(gateway, payer) : payDeposit(gateway, payer));
    assert.equal(reply.status, 200, reply.text.slice(0, 300));
    const traceId = reply.headers.get('x-trace-id');
    const { id, trace_id } = await payment(gateway);
    assert.equal(trace_id, traceId);
    const transfers = await gateway.db.selectFrom('transfer').select(['reference', 'trace_id']).execute();
    assert.deepEqual(transfers, [{ reference: String(id), trace_id: traceId }]);
    await assert.rejects(
      gateway.db.updateTable('x402_payment').set({ trace_id: null }).execute(),
      /what a payment promises never changes/,
    );
    assert.deepEqual(await audit(gateway.db), []);
    assert.equal(await sample(gateway, `speechgate_payments_total{flow="${flow}",event="settled"}`), 1);
    const micro = await sample(gateway, `speechgate_payments_micro_usd_total{flow="${flow}",event="settled"}`);
    assert.equal(BigInt(micro), amount);
  });
}

test('a settlement that is refused, one of unknown end, and what the chain tells of it then, are counted', {
  skip,
}, async (t) => {
  const gateway = await startX402Gateway(t, chain, { LOG_LEVEL: 'info' });
  const { faults } = gateway.facilitator;
  const counts = () =>
    Promise.all(
      ['refused', 'unknown', 'settled'].map((event) =>
        sample(gateway, `speechgate_payments_total{flow="direct",event="${event}"}`),
      ),
    );
  faults.settle(refused('insufficient_funds'));
  await payFor(gateway, await wallet(chain.client, 1_000_000n));
  assert.deepEqual(await counts(), [1, 0, 0]);
  const line = gateway.log.find(({ msg, flow, status }) => msg === 'request' && flow === 'direct' && status === 402);
  assert.deepEqual(
    [line?.characters, line?.chargedMicroUsd],
    [11, undefined],
    'the authorization may still land (R23)',
  );
  const payer = await wallet(chain.client, 1_000_000n);
  const { reply, paid } = await payUnknown(gateway, chain, () => payFor(gateway, payer));
  assert.deepEqual(await counts(), [1, 1, 0]);
  await chain.client.mine({ blocks: 2 });
  const again = await gateway.call('/x402/tts', paid);
  assert.equal(again.status, 200);
  const repeated = gateway.log.find(({ first }) => first !== undefined);
  assert.deepEqual(
    [repeated?.traceId, repeated?.first],
    [again, reply].map(({ headers }) => headers.get('x-trace-id')),
    'the line leads to the request that made the payment',
  );
  assert.deepEqual(await counts(), [1, 1, 1]);
});
