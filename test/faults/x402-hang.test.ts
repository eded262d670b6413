import { test } from 'tap';
import { audit } from '../../src/ledger/audit.ts';
import { testChain, wallet } from '../support/chain.ts';
import { assertCredited, DEPOSIT, DEPOSIT_PATH, doubtfulTurn, payDeposit, told } from '../support/deposit.ts';
import { testFacilitator } from '../support/facilitator.ts';
import { PRICE, payFor, startX402Gateway, timesPaid } from '../support/x402.ts';

const { chain, skip } = await testChain();

const SETTLE_TIMEOUT_MS = 1_000;

for (const broadcast of [true, false]) {
  test(`R25: settle hangs ${broadcast ? 'after' : 'before'} broadcast: it is sent once`, { skip }, async (t) => {
    const timeouts = { settleTimeoutMs: SETTLE_TIMEOUT_MS, ...(!broadcast && { inclusionTimeoutMs: 0 }) };
    const gateway = await startX402Gateway(t, chain, {}, timeouts);
    const payer = await wallet(chain.client, 10n * PRICE);
    gateway.facilitator.faults.settle({ broadcast, answer: 'hang' });
    const { reply, paid } = await payFor(gateway, payer);
    const replay = await gateway.call('/x402/tts', paid);
    t.strictSame([reply.status, replay.status], broadcast ? [200, 200] : [409, 409]);
    t.equal(await timesPaid(chain, payer), broadcast ? 1 : 0);
    t.equal(gateway.facilitator.calls.filter(({ endpoint }) => endpoint === 'settle').length, 1);
    t.strictSame(await audit(gateway.db), []);
  });
}

for (const broadcast of [true, false]) {
  test(`R25: no other facilitator settles when one hangs ${broadcast ? 'after' : 'before'} broadcast`, {
    skip,
  }, async (t) => {
    const [first, second] = [await testFacilitator(t, chain), await testFacilitator(t, chain)];
    const list = JSON.stringify([{ url: first.url }, { url: second.url }]);
    const env = { X402_FACILITATOR_URL: '', X402_FACILITATORS: list };
    const timeouts = { confirmationTimeoutMs: 0, settleTimeoutMs: SETTLE_TIMEOUT_MS };
    const gateway = await startX402Gateway(t, chain, env, timeouts);
    const payer = await wallet(chain.client, 1_000_000n);
    first.faults.settle({ broadcast, answer: 'hang' });
    const { reply, paid } = await payDeposit(gateway, payer);
    t.strictSame(told(reply), [409, broadcast ? 'PAYMENT_REPLAY_PENDING' : 'PAYMENT_OUTCOME_UNKNOWN']);
    if (broadcast) await chain.client.mine({ blocks: 1 });
    t.strictSame(await doubtfulTurn(gateway), ['done', broadcast ? 1 : 0]);
    const replay = told(await gateway.call(DEPOSIT_PATH, paid));
    t.strictSame(replay, broadcast ? [200, 0, true] : [409, 'PAYMENT_OUTCOME_UNKNOWN']);
    const calls = [first, second].map((each) => each.calls.map(({ endpoint }) => endpoint));
    t.strictSame(calls, [['verify', 'settle'], []]);
    t.equal(await timesPaid(chain, payer), broadcast ? 1 : 0);
    await assertCredited(gateway, payer, broadcast ? [DEPOSIT] : []);
  });
}

test('R24: a facilitator whose verify hung is asked last for a while', { skip }, async (t) => {
  const [first, second] = [await testFacilitator(t, chain), await testFacilitator(t, chain)];
  const list = JSON.stringify([{ url: first.url }, { url: second.url }]);
  const gateway = await startX402Gateway(t, chain, { X402_FACILITATOR_URL: '', X402_FACILITATORS: list });
  first.faults.verify('hang');
  for (const _ of [1, 2]) {
    const { reply } = await payFor(gateway, await wallet(chain.client, PRICE));
    t.equal(reply.status, 200);
  }
  const calls = [first, second].map((each) => each.calls.map(({ endpoint }) => endpoint));
  t.strictSame(calls, [['verify'], ['verify', 'settle', 'verify', 'settle']]);
});
