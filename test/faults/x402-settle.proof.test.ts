import assert from 'node:assert/strict';
import { setTimeout as sleep } from 'node:timers/promises';
import { test } from 'tap';
import { audit } from '../../src/ledger/audit.ts';
import { ASSET } from '../../src/sandbox/chain/chain-client.ts';
import { usdCoinAbi } from '../../src/sandbox/chain/contracts/generated.ts';
import { usdcBalance } from '../../src/sandbox/chain/fund.ts';
import {
  anotherTransaction,
  nonceAlreadyUsed,
  onlyClaimed,
  refused,
  type SettleFault,
  settlementPending,
} from '../../src/sandbox/facilitator/faults.ts';
import { cancelAuthorization, included, submitAuthorization, testChain, wallet } from '../support/chain.ts';
import type { Call } from '../support/gateway.ts';
import { mp3 } from '../support/stub-upstream.ts';
import { startTcpProxy } from '../support/tcp-proxy.ts';
import { until } from '../support/until.ts';
import {
  challengeOf,
  HELLO,
  nonceOf,
  PRICE,
  payFor,
  sign,
  startX402Gateway,
  timesPaid,
  withPayment,
  type X402Gateway,
} from '../support/x402.ts';

const { chain, skip } = await testChain();
const NOWHERE = `0x${'ab'.repeat(32)}`;

const stateOf = async (gateway: X402Gateway) =>
  (await gateway.db.selectFrom('x402_payment').select('state').executeTakeFirst())?.state;

/** Repeats the request until the chain, which is asked at most once a second, has told. */
async function replayUntil(gateway: X402Gateway, paid: Call, status: number) {
  let reply = await gateway.call('/x402/tts', paid);
  await until(async () => {
    if (reply.status === status) return true;
    await sleep(200);
    reply = await gateway.call('/x402/tts', paid);
    return reply.status === status;
  });
  return reply;
}

const LOST: [string, SettleFault][] = [
  ['500 after the broadcast', { broadcast: true, answer: 'error' }],
  ['a reset after the broadcast', { broadcast: true, answer: 'reset' }],
  ['HTML after the broadcast', { broadcast: true, answer: 'garbage' }],
  ['a redirect after the broadcast', { broadcast: true, answer: 'redirect' }],
  ['settlement_pending', settlementPending],
  ['nonce_already_used after its own settle', nonceAlreadyUsed],
  ['success with a transaction that is not there', anotherTransaction(NOWHERE)],
];

for (const [name, fault] of LOST) {
  test(`R25: settle answers ${name}: 409, and the audio once the chain has told; paid once`, { skip }, async (t) => {
    const gateway = await startX402Gateway(t, chain);
    const payer = await wallet(chain.client, 10n * PRICE);
    gateway.facilitator.faults.settle(fault);
    const { reply, paid, payload } = await payFor(gateway, payer);
    assert.equal(reply.status, 409, reply.text.slice(0, 300));
    assert.equal(reply.json.error.code, 'PAYMENT_OUTCOME_UNKNOWN');
    const replay = await replayUntil(gateway, paid, 200);
    assert.equal(replay.headers.get('x-idempotent-replay'), 'true');
    assert.equal(replay.headers.get('content-type'), 'audio/mpeg');
    assert.equal(await timesPaid(chain, payer), 1);
    assert.equal(await gateway.revenue(), PRICE);
    assert.equal(gateway.facilitator.calls.filter(({ endpoint }) => endpoint === 'settle').length, 1);
    assert.equal(gateway.upstream.requests.length, 1);
    assert.deepEqual(await audit(gateway.db), []);

    const other = await sign(payer, await challengeOf(gateway, '/x402/tts', HELLO));
    const reused = await gateway.call('/x402/tts', withPayment(HELLO, { ...other, payload: payload.payload }));
    assert.equal(reused.json.error.code, 'PAYMENT_IDENTIFIER_CONFLICT');
  });
}

const NOT_SENT: [string, SettleFault][] = [
  ['500 before the broadcast', { broadcast: false, answer: 'error' }],
  ['a reset before the broadcast', { broadcast: false, answer: 'reset' }],
  ['a success that is a lie', onlyClaimed(NOWHERE)],
  ['a refusal with a reason that excludes nothing', refused('unexpected_settle_error')],
];

for (const [name, fault] of NOT_SENT) {
  test(`R25: settle answers ${name}: 409 on each replay, nothing is sent again`, { skip }, async (t) => {
    const gateway = await startX402Gateway(t, chain);
    const payer = await wallet(chain.client, 10n * PRICE);
    gateway.facilitator.faults.settle(fault);
    const { reply, paid } = await payFor(gateway, payer);
    for (const answer of [reply, await gateway.call('/x402/tts', paid), await gateway.call('/x402/tts', paid)]) {
      assert.equal(answer.json.error.code, 'PAYMENT_OUTCOME_UNKNOWN');
    }
    assert.equal(await stateOf(gateway), 'unknown');
    assert.equal(await timesPaid(chain, payer), 0);
    assert.equal(gateway.facilitator.calls.length, 2);
    assert.equal(gateway.facilitator.broadcasts.length, 0);
    assert.deepEqual(await audit(gateway.db), []);
  });
}

test('R23: a refused settlement is 402 again and again; when it lands after all, the replay has the audio', {
  skip,
}, async (t) => {
  const gateway = await startX402Gateway(t, chain);
  const payer = await wallet(chain.client, 10n * PRICE);
  gateway.facilitator.faults.settle(refused('invalid_exact_evm_insufficient_balance'));
  const { reply, paid, payload } = await payFor(gateway, payer);
  for (const answer of [reply, await gateway.call('/x402/tts', paid)]) {
    assert.equal(answer.status, 402);
    assert.equal(answer.json.error.details.error, 'invalid_exact_evm_insufficient_balance');
  }
  assert.equal(await stateOf(gateway), 'refused');

  const fresh = await sign(payer, await challengeOf(gateway, '/x402/tts', HELLO));
  const misuses = [
    { ...payload, payload: fresh.payload },
    { ...fresh, payload: payload.payload },
  ];
  for (const misuse of misuses) {
    const answer = await gateway.call('/x402/tts', withPayment(HELLO, misuse));
    assert.equal(answer.json.error.code, 'PAYMENT_IDENTIFIER_CONFLICT');
  }

  const sender = await wallet(chain.client);
  const { authorization, signature } = payload.payload as {
    authorization: Record<'from' | 'to' | 'nonce', `0x${string}`> &
      Record<'value' | 'validAfter' | 'validBefore', string>;
    signature: `0x${string}`;
  };
  const { value, validAfter, validBefore, ...rest } = authorization;
  const numbers = { value: BigInt(value), validAfter: BigInt(validAfter), validBefore: BigInt(validBefore) };
  await included(
    chain.client,
    submitAuthorization(chain.client, sender, { authorization: { ...rest, ...numbers }, signature }),
  );
  const replay = await replayUntil(gateway, paid, 200);
  assert.equal(replay.headers.get('x-idempotent-replay'), 'true');
  assert.equal(await timesPaid(chain, payer), 1);
  assert.equal(gateway.facilitator.broadcasts.length, 0);
  assert.deepEqual(await audit(gateway.db), []);
});

test('an authorization that is cancelled between verify and settle is never paid, and ends as 402', {
  skip,
}, async (t) => {
  const gateway = await startX402Gateway(t, chain);
  const payer = await wallet(chain.client, 10n * PRICE);
  const payload = await sign(payer, await challengeOf(gateway, '/x402/tts', HELLO));
  gateway.upstream.mode = async (request, response) => {
    await included(chain.client, cancelAuthorization(chain.client, payer, nonceOf(payload)));
    mp3()(request, response);
  };
  const paid = withPayment(HELLO, payload);
  const reply = await gateway.call('/x402/tts', paid);
  assert.equal(reply.json.error.code, 'PAYMENT_OUTCOME_UNKNOWN');
  await chain.client.mine({ blocks: 3 });
  await replayUntil(gateway, paid, 402);
  assert.equal(await stateOf(gateway), 'failed');
  assert.equal(await timesPaid(chain, payer), 0);
  assert.deepEqual(await audit(gateway.db), []);
});

test('a payer who is drained between verify and settle: 402, nothing delivered, nothing paid', { skip }, async (t) => {
  const gateway = await startX402Gateway(t, chain);
  const payer = await wallet(chain.client, 10n * PRICE);
  gateway.upstream.mode = async (request, response) => {
    const balance = await usdcBalance(chain.client, payer.address);
    const drain = chain.client.writeContract({
      account: payer,
      address: ASSET,
      abi: usdCoinAbi,
      functionName: 'transfer',
      args: ['0x000000000000000000000000000000000000dEaD', balance],
    });
    await included(chain.client, drain);
    mp3()(request, response);
  };
  const { reply, paid } = await payFor(gateway, payer);
  assert.equal(reply.status, 402);
  assert.equal((await gateway.call('/x402/tts', paid)).status, 402);
  assert.equal(await stateOf(gateway), 'refused');
  assert.equal(await timesPaid(chain, payer), 0);
});

test('R25: a node that is gone after settle: 409 until it is back, then the audio', { skip }, async (t) => {
  const node = await startTcpProxy(t, chain.rpcUrl);
  const gateway = await startX402Gateway(t, chain, { X402_RPC_URL: node.url });
  const payer = await wallet(chain.client, 10n * PRICE);
  gateway.upstream.mode = (request, response) => {
    node.cut();
    mp3()(request, response);
  };
  const { reply, paid } = await payFor(gateway, payer);
  assert.equal(reply.json.error.code, 'PAYMENT_OUTCOME_UNKNOWN');
  assert.equal((await gateway.call('/x402/tts', paid)).json.error.code, 'PAYMENT_OUTCOME_UNKNOWN');
  node.restore();
  assert.equal((await replayUntil(gateway, paid, 200)).headers.get('x-idempotent-replay'), 'true');
  assert.equal(await timesPaid(chain, payer), 1);
  assert.deepEqual(await audit(gateway.db), []);
});

test('R55: a caller who leaves during synthesis has paid, and gets the audio by repeating', { skip }, async (t) => {
  const gateway = await startX402Gateway(t, chain);
  const payer = await wallet(chain.client, 10n * PRICE);
  const paid = withPayment(HELLO, await sign(payer, await challengeOf(gateway, '/x402/tts', HELLO)));
  const leaving = new AbortController();
  gateway.upstream.mode = (request, response) => {
    leaving.abort();
    mp3()(request, response);
  };
  const left = fetch(`${gateway.url}/x402/tts`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', ...(paid.headers as Record<string, string>) },
    body: JSON.stringify(HELLO.json),
    signal: leaving.signal,
  });
  await assert.rejects(left);
  await until(async () => (await stateOf(gateway)) === 'settled');
  const replay = await gateway.call('/x402/tts', paid);
  assert.equal(replay.headers.get('x-idempotent-replay'), 'true');
  assert.equal(await timesPaid(chain, payer), 1);
});
