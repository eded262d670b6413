import assert from 'node:assert/strict';
import { test } from 'tap';
import { audit } from '../../src/ledger/audit.ts';
import { testChain, wallet } from '../support/chain.ts';
import { PRICE, payFor, startX402Gateway, timesPaid } from '../support/x402.ts';

const { chain, skip } = await testChain();

for (const broadcast of [true, false]) {
  test(`R25: a settle that hangs ${broadcast ? 'after' : 'before'} its broadcast is given up after 30 s, and never sent again`, {
    skip,
  }, async (t) => {
    const gateway = await startX402Gateway(t, chain);
    const payer = await wallet(chain.client, 10n * PRICE);
    gateway.facilitator.faults.settle({ broadcast, answer: 'hang' });
    const { reply, paid } = await payFor(gateway, payer);
    const replay = await gateway.call('/x402/tts', paid);
    assert.deepEqual([reply.status, replay.status], broadcast ? [200, 200] : [409, 409]);
    assert.equal(await timesPaid(chain, payer), broadcast ? 1 : 0);
    assert.equal(gateway.facilitator.calls.filter(({ endpoint }) => endpoint === 'settle').length, 1);
    assert.deepEqual(await audit(gateway.db), []);
  });
}
