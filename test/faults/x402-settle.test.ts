import assert from 'node:assert/strict';
import { setTimeout as sleep } from 'node:timers/promises';
import { test } from 'tap';
import { audit } from '../../src/ledger/audit.ts';
import { testChain, wallet } from '../support/chain.ts';
import { land, paymentStates } from '../support/deposit.ts';
import {
  anotherTransaction,
  invalid,
  LOST_SETTLES,
  onlyClaimed,
  refused,
  type SettleFault,
} from '../support/facilitator-faults.ts';
import type { Call } from '../support/gateway.ts';
import { insertPaymentInDoubt } from '../support/prepaid.ts';
import { mp3 } from '../support/stub-upstream.ts';
import { startTcpProxy } from '../support/tcp-proxy.ts';
import { until } from '../support/until.ts';
import {
  challengeOf,
  decodeHeader,
  HELLO,
  PRICE,
  payFor,
  sign,
  startX402Gateway,
  timesPaid,
  withPayment,
  type X402Gateway,
} from '../support/x402.ts';

const { chain, skip } = await testChain();
/** The chain is asked once, at once. */
const IMPATIENT = { inclusionTimeoutMs: 0 };
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
  ...LOST_SETTLES,
  ['an unknown transaction', anotherTransaction(NOWHERE)],
  ['201', { broadcast: true, status: 201, answer: (settled) => ({ ...settled }) }],
  ['202 pending', { broadcast: true, status: 202, answer: (settled) => ({ transaction: settled?.transaction }) }],
  ['a hash without 0x', { broadcast: true, answer: (s) => ({ success: true, transaction: s?.transaction.slice(2) }) }],
];

test('R25: whatever settle answers, speech is 200 once the chain proves payment', { skip }, async (t) => {
  const gateway = await startX402Gateway(t, chain);
  const { facilitator, upstream } = gateway;
  for (const [index, [name, fault]] of LOST.entries()) {
    const payer = await wallet(chain.client, PRICE);
    facilitator.faults.settle(fault);
    const { reply, paid, payload } = await payFor(gateway, payer);
    t.strictSame([reply.status, reply.headers.get('x-idempotent-replay')], [200, 'false'], name);
    const { transaction } = decodeHeader(reply.headers.get('payment-response'));
    t.equal(transaction, facilitator.broadcasts[index], name);
    t.equal((await gateway.call('/x402/tts', paid)).headers.get('x-idempotent-replay'), 'true', name);
    t.equal(await timesPaid(chain, payer), 1, name);
    const other = await sign(payer, await challengeOf(gateway, '/x402/tts', HELLO));
    const reused = await gateway.call('/x402/tts', withPayment(HELLO, { ...other, payload: payload.payload }));
    t.equal(reused.json.error.code, 'PAYMENT_IDENTIFIER_CONFLICT', name);
  }
  t.equal(await gateway.revenue(), PRICE * BigInt(LOST.length));
  t.equal(facilitator.calls.length, 2 * LOST.length, 'one settle for each verify');
  t.equal(upstream.requests.length, LOST.length);
  t.strictSame(await audit(gateway.db), []);
});

test('R25: a transfer that lands during the chain look-up is answered with its audio', { skip }, async (t) => {
  const gateway = await startX402Gateway(t, chain);
  const payer = await wallet(chain.client, 10n * PRICE);
  const payload = await sign(payer, await challengeOf(gateway, '/x402/tts', HELLO));
  gateway.facilitator.faults.settle({ broadcast: false, answer: 'error' });
  const settled = gateway.call('/x402/tts', withPayment(HELLO, payload));
  await until(async () => (await stateOf(gateway)) === 'settling');
  await land(chain, payload);
  t.equal((await settled).status, 200);
  t.strictSame(await audit(gateway.db), []);
});

test('R25: 409 names a known transaction on each replay', { skip }, async (t) => {
  const gateway = await startX402Gateway(t, chain, {}, IMPATIENT);
  const pending = { success: false, errorReason: 'settlement_pending', transaction: NOWHERE };
  gateway.facilitator.faults.settle({ broadcast: false, answer: () => pending });
  const { reply, paid } = await payFor(gateway, await wallet(chain.client, 10n * PRICE));
  for (const answer of [reply, await gateway.call('/x402/tts', paid)]) {
    t.strictSame([answer.status, answer.json.error.code], [409, 'PAYMENT_OUTCOME_UNKNOWN']);
    t.equal(answer.json.error.details.transaction, NOWHERE);
    t.match(answer.headers.get('retry-after') ?? '', /^[1-9]\d?$/);
  }
});

const NOT_SENT: [string, SettleFault][] = [
  ['500 before the broadcast', { broadcast: false, answer: 'error' }],
  ['a reset before the broadcast', { broadcast: false, answer: 'reset' }],
  ['a false success', onlyClaimed(NOWHERE)],
  ['a refusal of unknown cause', refused('unexpected_settle_error')],
];

test('R25: a settle that sent nothing is 409 on each replay, sent once', { skip }, async (t) => {
  const gateway = await startX402Gateway(t, chain, {}, IMPATIENT);
  for (const [name, fault] of NOT_SENT) {
    gateway.facilitator.faults.settle(fault);
    const { reply, paid } = await payFor(gateway, await wallet(chain.client, PRICE));
    for (const answer of [reply, await gateway.call('/x402/tts', paid), await gateway.call('/x402/tts', paid)]) {
      t.equal(answer.json.error.code, 'PAYMENT_OUTCOME_UNKNOWN', name);
    }
  }
  t.strictSame(
    await paymentStates(gateway),
    NOT_SENT.map(() => 'unknown'),
  );
  t.equal(await gateway.revenue(), 0n);
  t.equal(gateway.facilitator.calls.length, 2 * NOT_SENT.length);
  t.strictSame(await audit(gateway.db), []);
});

test('R23: a refused settlement is 402 until it lands, then the replay has the audio', { skip }, async (t) => {
  const gateway = await startX402Gateway(t, chain);
  const payer = await wallet(chain.client, 10n * PRICE);
  gateway.facilitator.faults.settle(refused('insufficient_funds'));
  const { reply, paid, payload } = await payFor(gateway, payer);
  for (const answer of [reply, await gateway.call('/x402/tts', paid)]) {
    t.equal(answer.status, 402);
    t.equal(answer.json.error.details.error, 'insufficient_funds');
    const { success, errorReason, transaction } = decodeHeader(answer.headers.get('payment-response'));
    t.strictSame([success, errorReason, transaction], [false, 'insufficient_funds', '']);
  }
  t.equal(await stateOf(gateway), 'refused');

  const fresh = await sign(payer, await challengeOf(gateway, '/x402/tts', HELLO));
  const misuses = [
    { ...payload, payload: fresh.payload },
    { ...fresh, payload: payload.payload },
  ];
  for (const misuse of misuses) {
    const answer = await gateway.call('/x402/tts', withPayment(HELLO, misuse));
    t.equal(answer.json.error.code, 'PAYMENT_IDENTIFIER_CONFLICT');
  }

  await land(chain, payload);
  const replay = await replayUntil(gateway, paid, 200);
  t.equal(replay.headers.get('x-idempotent-replay'), 'true');
  t.equal(await timesPaid(chain, payer), 1);
  t.equal(gateway.facilitator.broadcasts.length, 0);
  t.strictSame(await audit(gateway.db), []);
});

test('R23: a facilitator without gas is not blamed on a payer who can pay', { skip }, async (t) => {
  const gateway = await startX402Gateway(t, chain, { LOG_LEVEL: 'error' });
  const LACKS_BALANCE = 'invalid_exact_evm_insufficient_balance';
  const payer = await wallet(chain.client, 10n * PRICE);
  for (let time = 0; time < 2; time++) {
    gateway.facilitator.faults.settle(refused(LACKS_BALANCE));
    const { reply, paid } = await payFor(gateway, payer);
    for (const answer of [reply, await gateway.call('/x402/tts', paid)]) {
      t.strictSame([answer.status, answer.json.error.code], [502, 'PAYMENT_ERROR'], answer.text);
      t.match(answer.json.error.message, /lacks gas/);
      const { reason, payment } = answer.json.error.details;
      t.strictSame([reason, payment.state], ['facilitator_lacks_gas', 'unknown']);
    }
  }
  gateway.facilitator.faults.verify(invalid(LACKS_BALANCE));
  const { reply, paid } = await payFor(gateway, payer);
  t.strictSame([reply.status, reply.json.error.details.payment.state], [502, 'not_charged'], reply.text);

  let spoken = 0;
  gateway.upstream.mode = async (request, response) => {
    spoken += 1;
    await until(async () => spoken === 2);
    mp3()(request, response);
  };
  const both = await Promise.all([gateway.call('/x402/tts', paid), payFor(gateway, payer)]);
  t.strictSame([both[0].status, both[1].reply.status], [200, 200], 'two at once are sold to a payer without blame');
  const errors = gateway.log.filter(({ level }) => level === 'error');
  t.equal(errors.filter(({ msg }) => /lacks gas/.test(String(msg))).length, 3);
  const scrape = (await gateway.app.admin.inject({ url: '/metrics', headers: { host: 'localhost' } })).body;
  t.match(scrape, /^speechgate_facilitator_lacked_gas_total 3$/m);
  t.strictSame(await audit(gateway.db), []);

  gateway.upstream.mode = mp3();
  const poor = await wallet(chain.client, PRICE);
  gateway.facilitator.faults.settle(refused(LACKS_BALANCE));
  t.equal((await payFor(gateway, poor)).reply.status, 502);
  // The payer's only money is promised to the payment before.
  gateway.facilitator.faults.verify(invalid(LACKS_BALANCE));
  const second = await payFor(gateway, poor);
  t.strictSame([second.reply.status, second.reply.json.error.details.error], [402, LACKS_BALANCE]);
  t.match(second.reply.json.error.message, /too little USDC/);
});

test('R25: with the node down after settle, replays are 409 until it recovers', { skip }, async (t) => {
  const node = await startTcpProxy(t, chain.rpcUrl);
  const gateway = await startX402Gateway(t, chain, { X402_RPC_URL: node.url, LOG_LEVEL: 'warn' }, IMPATIENT);
  const payer = await wallet(chain.client, 10n * PRICE);
  gateway.upstream.mode = (request, response) => {
    node.cut();
    mp3()(request, response);
  };
  const { reply, paid, payload } = await payFor(gateway, payer);
  t.equal(reply.json.error.code, 'PAYMENT_OUTCOME_UNKNOWN');
  t.equal((await gateway.call('/x402/tts', paid)).json.error.code, 'PAYMENT_OUTCOME_UNKNOWN');
  // The head is known for a second after it was read. Beside another payment, the balance is read too.
  const other = await wallet(chain.client, PRICE);
  await insertPaymentInDoubt(gateway.db, other.address.toLowerCase(), PRICE);
  await until(async () => {
    assert.equal((await payFor(gateway, other)).reply.status, 502);
    return gateway.log.some(
      ({ msg }) =>
        msg ===
        'failed to read the newest block from a chain node, and this attempt charged nothing. Read err for the cause; check the nodes of X402_RPC_URL if this repeats',
    );
  });
  const renamed = await sign(payer, await challengeOf(gateway, '/x402/tts', HELLO));
  const { authorization } = payload.payload;
  for (const signature of [payload.payload.signature, `0x${'12'.repeat(70)}`]) {
    const reused = { ...renamed, payload: { authorization, signature } };
    const refusal = await gateway.call('/x402/tts', withPayment(HELLO, reused));
    t.equal(refusal.json.error.code, 'PAYMENT_IDENTIFIER_CONFLICT', 'R45: even then');
  }
  node.restore();
  t.equal((await replayUntil(gateway, paid, 200)).headers.get('x-idempotent-replay'), 'true');
  t.equal(await timesPaid(chain, payer), 1);
  t.strictSame(await audit(gateway.db), []);
});
