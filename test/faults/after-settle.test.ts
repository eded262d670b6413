import assert from 'node:assert/strict';
import { mock } from 'node:test';
import { sql } from 'kysely';
import { test } from 'tap';
import { audit } from '../../src/ledger/audit.ts';
import { testChain, wallet } from '../support/chain.ts';
import {
  assertCredited,
  DEPOSIT,
  DEPOSIT_PATH,
  doubtfulTurn,
  mineSteadily,
  payDeposit,
  paymentStates,
  signedOf,
  told,
  withTerms,
} from '../support/deposit.ts';
import { failStatements } from '../support/failing-statements.ts';
import { startRpcNode } from '../support/rpc-node.ts';
import { until } from '../support/until.ts';
import { challengeOf, HELLO, PRICE, payFor, sign, startX402Gateway, timesPaid, withPayment } from '../support/x402.ts';

const { chain, skip } = await testChain();

/** What no outage looks like. */
const SURPRISE = 'P0001';
const BOOKINGS = { table: 'transfer', on: 'insert', when: sql`new.kind in ('settlement', 'deposit')` } as const;

test('R62: the gateway retries recording a settlement after a database outage', { skip }, async (t) => {
  const gateway = await startX402Gateway(t, chain);
  // What a database that fails inside answers; `failing-statements.test.ts` has more.
  const failing = await failStatements(gateway.db, { ...BOOKINGS, state: '40P01', times: 2 });
  const payer = await wallet(chain.client, 1_000_000n);
  const { reply } = await payFor(gateway, payer);
  t.equal(reply.status, 200, reply.text);
  t.equal(await failing.count(), 2);
  t.equal(await timesPaid(chain, payer), 1);
  t.strictSame(await audit(gateway.db), []);
});

test('R62: replays of an unrecorded settlement are 409 until the database recovers', { skip }, async (t) => {
  const gateway = await startX402Gateway(t, chain);
  const failing = await failStatements(gateway.db, { ...BOOKINGS, state: SURPRISE });
  const payer = await wallet(chain.client, 1_000_000n);
  const { reply, paid } = await payFor(gateway, payer);
  t.strictSame([reply.status, reply.json.error.code], [409, 'PAYMENT_OUTCOME_UNKNOWN']);
  t.notMatch(reply.text, /nothing was charged/i);
  t.equal(await gateway.revenue(), PRICE);
  t.equal(await failing.count(), 1);
  const again = await gateway.call('/x402/tts', paid);
  t.strictSame([again.status, again.json.error.code], [409, 'PAYMENT_OUTCOME_UNKNOWN'], 'R25: on each replay');
  t.equal(await failing.count(), 2);
  await failing.mend();
  await chain.client.mine({ blocks: 2 });
  // The chain is asked once a second.
  await until(async () => (await gateway.call('/x402/tts', paid)).status === 200);
  t.equal(await timesPaid(chain, payer), 1);
  t.strictSame(await audit(gateway.db), []);
});

test('R62: an unrecorded deposit is 409, then credited once the database recovers', { skip }, async (t) => {
  mineSteadily(t, chain);
  const gateway = await startX402Gateway(t, chain);
  const failing = await failStatements(gateway.db, { ...BOOKINGS, state: SURPRISE });
  const payer = await wallet(chain.client, 1_000_000n);
  const { reply, paid } = await payDeposit(gateway, payer);
  t.equal(reply.status, 409, reply.text);
  t.notMatch(reply.text, /nothing was charged/i);
  const before = await failing.count();
  await until(async () => {
    assert.equal((await gateway.call(DEPOSIT_PATH, paid)).status, 409, 'R25: on each replay');
    return (await failing.count()) > before;
  });
  await failing.mend();
  let answer: ReturnType<typeof told> = [];
  await until(async () => {
    answer = told(await gateway.call(DEPOSIT_PATH, paid));
    return answer[0] === 200;
  });
  t.strictSame(answer, [200, DEPOSIT, false]);
  await assertCredited(gateway, payer, [DEPOSIT]);
});

const RECEIPT = { status: '0x1', blockNumber: '0x1', transactionHash: `0x${'1'.repeat(64)}` };
/** Answers to eth_getTransactionReceipt that are none. */
const NO_RECEIPTS = [
  {},
  RECEIPT,
  { ...RECEIPT, logs: null },
  { ...RECEIPT, logs: [null] },
  { ...RECEIPT, logs: [{ address: 7 }] },
  { status: 1, blockNumber: 1, transactionHash: null, logs: [] },
  'success',
  42,
];

test('R62: a malformed receipt from the node leaves the payment outcome unknown', { skip }, async (t) => {
  const node = await startRpcNode(t, chain.rpcUrl);
  let asked = 0;
  node.falsehood = ({ method }) =>
    method === 'eth_getTransactionReceipt' ? { result: NO_RECEIPTS[asked++ % NO_RECEIPTS.length] } : undefined;
  const gateway = await startX402Gateway(t, chain, { X402_RPC_URL: node.url }, { inclusionTimeoutMs: 3_000 });
  const payer = await wallet(chain.client, 1_000_000n);
  const { reply, paid } = await payFor(gateway, payer);
  t.strictSame([reply.status, reply.json.error.code], [409, 'PAYMENT_OUTCOME_UNKNOWN']);
  t.ok(asked >= NO_RECEIPTS.length, 'each of them was seen');
  t.strictSame(await paymentStates(gateway), ['unknown']);
  node.falsehood = () => undefined;
  t.strictSame(await doubtfulTurn(gateway), ['done', 1]);
  t.equal((await gateway.call('/x402/tts', paid)).status, 200);
  t.equal(await timesPaid(chain, payer), 1);
  t.strictSame(await audit(gateway.db), []);
});

test('R28: an authorization that expires during the checks is 402, without reservation', { skip }, async (t) => {
  const gateway = await startX402Gateway(t, chain);
  const payer = await wallet(chain.client, 1_000_000n);
  const payload = await sign(payer, await challengeOf(gateway, '/x402/tts', HELLO));
  const short = await withTerms(payer, payload, { validBefore: BigInt(Math.floor(Date.now() / 1000) + 60) });
  // While the facilitator is asked, all but 10 seconds pass: too few for the synthesis, enough for its own check.
  t.teardown(() => mock.timers.reset());
  gateway.facilitator.faults.nextVerify = () => {
    mock.timers.setTime((Number(signedOf(short).authorization.validBefore) - 10) * 1000);
    return undefined;
  };
  mock.timers.enable({ apis: ['Date'], now: Date.now() });
  const reply = await gateway.call('/x402/tts', withPayment(HELLO, short));
  t.strictSame([reply.status, reply.json.error.details.error], [402, 'authorization_expires_too_soon']);
  t.equal(gateway.facilitator.calls.filter(({ endpoint }) => endpoint === 'verify').length, 1);
  t.strictSame(await paymentStates(gateway), []);
  t.equal(gateway.upstream.requests.length, 0);
});
