import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { type Test, test } from 'tap';
import { adjustBalance, freezeAccount } from '../../src/ledger/account-changes.ts';
import { audit } from '../../src/ledger/audit.ts';
import { applyClawback } from '../../src/ledger/debts.ts';
import { FLOWS, type PausableFlow, pauseFlows, resumeFlows } from '../../src/ledger/pauses.ts';
import { say } from '../journeys/card.ts';
import { testChain, wallet } from '../support/chain.ts';
import { DEPOSIT, mineSteadily, payDeposit, prepaidBalance, signDeposit } from '../support/deposit.ts';
import { type Call, type Gateway, type Reply, startGateway } from '../support/gateway.ts';
import { later, untilJob } from '../support/jobs.ts';
import { fundedWallet, startPrepaidGateway, TTS } from '../support/prepaid.ts';
import { testUpstream } from '../support/stub-upstream.ts';
import { until } from '../support/until.ts';
import { challengeOf, HELLO, PRICE, payFor, sign, startX402Gateway, timesPaid, withPayment } from '../support/x402.ts';

const { chain, skip } = await testChain();
const ACTION = { operator: 'alice', reason: 'ticket 7' };

/** Instead of within a second. The first read may join one that began before the change. */
async function seePauses({ app: { pauses } }: Gateway): Promise<void> {
  await pauses.read();
  await pauses.read();
}

async function pause(gateway: Gateway, ...flows: PausableFlow[]): Promise<void> {
  await pauseFlows(gateway.db, flows, ACTION);
  await seePauses(gateway);
}

test('a paused direct flow still replays paid audio and takes no new payment', { skip }, async (t) => {
  const gateway = await startX402Gateway(t, chain);
  const payer = await wallet(chain.client, 10n * PRICE);
  const { reply, paid } = await payFor(gateway, payer);
  t.equal(reply.status, 200);
  const next = withPayment(HELLO, await sign(payer, await challengeOf(gateway, '/x402/tts', HELLO)));
  await pause(gateway, 'direct');
  const calls = gateway.facilitator.calls.length;
  const replayed = await gateway.call('/x402/tts', paid);
  t.strictSame([replayed.status, replayed.headers.get('x-idempotent-replay')], [200, 'true']);
  t.ok(replayed.bytes.equals(reply.bytes));
  const refused = await gateway.call('/x402/tts', next);
  t.strictSame([refused.status, refused.json.error.details.reason], [503, 'paused']);
  const reused = await gateway.call('/x402/tts', { ...paid, json: { text: 'Another text' } });
  t.equal(reused.status, 409, 'an identifier that belongs to another request is told as ever');
  t.equal(gateway.facilitator.calls.length, calls);
  t.equal((await gateway.db.selectFrom('x402_payment').select('id').execute()).length, 1);
  t.equal(await timesPaid(chain, payer), 1);
});

test('a paused deposit flow still replays deposits and takes no new one', { skip }, async (t) => {
  mineSteadily(t, chain);
  const gateway = await startX402Gateway(t, chain);
  const payer = await wallet(chain.client, BigInt(3 * DEPOSIT));
  const { reply, paid } = await payDeposit(gateway, payer);
  t.equal(reply.status, 200, reply.text);
  const next = withPayment({ method: 'POST', json: { amountMicroUsd: DEPOSIT } }, await signDeposit(gateway, payer));
  await pause(gateway, 'deposit');
  const replayed = await gateway.call('/x402/deposit', paid);
  t.strictSame([replayed.status, replayed.json.alreadyCredited], [200, true]);
  const refused = await gateway.call('/x402/deposit', next);
  t.strictSame([refused.status, refused.json.error.details.reason], [503, 'paused']);
  t.ok(Number(refused.headers.get('retry-after')) > 0);
  t.equal(await timesPaid(chain, payer), 1);
  t.equal(await prepaidBalance(gateway, payer), DEPOSIT, 'the balance can be read');
});

/** Of a pause until a process has seen it. */
const SECONDS = 5_000;

const form = (body: string, accept: string): Call => ({
  method: 'POST',
  body,
  headers: { 'content-type': 'application/x-www-form-urlencoded', accept },
});

function assertPaused(reply: Reply, code = 'TTS_UNAVAILABLE'): void {
  assert.equal(reply.status, 503, reply.text);
  assert.equal(reply.json.error.code, code);
  assert.equal(reply.json.error.details.reason, 'paused');
  assert.match(reply.json.error.message, /operator has paused/);
  assert.ok(Number(reply.headers.get('retry-after')) > 0);
}

async function start(t: Test, options: { worker?: boolean } = {}) {
  const upstream = await testUpstream(t);
  const gateway = await startGateway(t, { SPEECH_BASE_URL: upstream.url }, options);
  return { upstream, gateway, account: await gateway.fund(500) };
}

test('paused card speech charges nothing and returns no challenge until resumed', async (t) => {
  const { gateway, upstream, account } = await start(t);
  await pause(gateway, 'card');
  assertPaused(await gateway.call('/tts', say(account)));
  assertPaused(await gateway.call('/tts?text=Hello', { headers: { 'x-credit-account': account } }));
  assertPaused(await gateway.call('/tts', say(undefined)));
  t.equal((await gateway.call('/tts', say(account, { text: '' }))).status, 400, 'what is wrong is told first');
  t.strictSame([await gateway.balance(account), upstream.requests.length], [5_000_000n, 0]);
  t.equal((await later(gateway, account)).status, 202, 'jobs are another flow');
  t.strictSame(await resumeFlows(gateway.db, ['card', 'jobs'], ACTION), ['card']);
  await seePauses(gateway);
  t.equal((await gateway.call('/tts', say(account))).status, 200);
});

test('paused jobs finish the queue and answer repeated keys, but accept nothing new', async (t) => {
  const { gateway, account } = await start(t);
  const first = await later(gateway, account, { key: 'order 1' });
  await pause(gateway, 'jobs');
  assertPaused(await later(gateway, account));
  assertPaused(await later(gateway, account, { key: 'order 2' }));
  assertPaused(await later(gateway, randomUUID(), { key: 'order 2' }));
  const repeated = await later(gateway, account, { key: 'order 1' });
  t.strictSame([repeated.status, repeated.json.jobId], [202, first.json.jobId]);
  t.equal((await later(gateway, account, { key: 'order 1', text: 'Another' })).status, 400);
  t.equal((await gateway.call('/tts', say(account))).status, 200, 'speech at once is another flow');
  gateway.app.worker?.start();
  t.equal((await untilJob(gateway, first.json.jobId, 'completed', 'failed')).json.status, 'completed');
  t.equal(await gateway.balance(account), 5_000_000n - 2n * 198n);
});

test('paused prepaid speech spends no nonce, so the same request succeeds later', async (t) => {
  const gateway = await startPrepaidGateway(t);
  const { sign, balance } = await fundedWallet(gateway, 1000n);
  const signed = await sign(TTS, HELLO);
  await pause(gateway, 'prepaid');
  assertPaused(await gateway.call(TTS, signed));
  t.equal(await balance(), 1000n);
  t.equal((await gateway.call(TTS, HELLO)).status, 402, 'a request without payment is asked for a direct one');
  await resumeFlows(gateway.db, ['prepaid'], ACTION);
  await seePauses(gateway);
  t.equal((await gateway.call(TTS, signed)).status, 200);
});

test('paused direct payments and deposits return no challenges', async (t) => {
  const gateway = await startPrepaidGateway(t);
  await pause(gateway, 'direct', 'deposit');
  assertPaused(await gateway.call(TTS, HELLO));
  assertPaused(await gateway.call(`${TTS}?text=Hello`));
  const deposit = await gateway.call('/x402/deposit', { method: 'POST', json: { amountMicroUsd: 1_000_000 } });
  assertPaused(deposit, 'CONFIG_ERROR');
  const { sign } = await fundedWallet(gateway, 1000n);
  t.equal((await gateway.call(TTS, await sign(TTS, HELLO))).status, 200, 'prepaid speech is another flow');
});

test('paused purchases open no checkout and show a page', async (t) => {
  const gateway = await startGateway(t);
  await pause(gateway, 'top-up');
  assertPaused(await gateway.call('/top-up', form('amount=500', 'application/json')), 'CONFIG_ERROR');
  for (const reply of [
    await gateway.call('/top-up', form('amount=500', 'text/html')),
    await gateway.call('/top-up', { headers: { accept: 'text/html' } }),
  ]) {
    t.equal(reply.status, 503);
    t.match(reply.text, /Adding credit is paused/);
    t.ok(Number(reply.headers.get('retry-after')) > 0);
  }
  t.strictSame(await gateway.db.selectFrom('top_up').select('id').execute(), []);
});

test('replicas see a pause within seconds and keep it through a database outage', async (t) => {
  const first = await startGateway(t);
  const second = await startGateway(t, {}, { databaseUrl: first.databaseUrl });
  await pauseFlows(first.db, FLOWS, ACTION);
  const hasAll = ({ app }: typeof first) => FLOWS.every((flow) => app.pauses.has(flow));
  await until(() => hasAll(first) && hasAll(second), SECONDS);
  const third = await startGateway(t, {}, { databaseUrl: first.databaseUrl });
  await third.app.pauses.read();
  t.ok(hasAll(third));
  t.equal((await first.call('/tts/models')).status, 200, 'what takes no money is not paused');
  await first.db.schema.alterTable('paused_flow').renameTo('paused_flow_away').execute();
  await seePauses(second);
  t.ok(hasAll(second), 'what was known last stands');
});

test('operator actions are recorded once with name and reason and cannot change', async (t) => {
  const { db } = await startGateway(t);
  t.strictSame(await pauseFlows(db, ['card', 'direct'], ACTION), ['card', 'direct']);
  t.strictSame(await pauseFlows(db, ['card', 'jobs'], { ...ACTION, operator: 'bob' }), ['jobs']);
  t.strictSame(await resumeFlows(db, ['card'], { operator: 'bob', reason: 'moved' }), ['card']);
  const actions = await db.selectFrom('operator_action').selectAll().orderBy('id').execute();
  t.strictSame(
    actions.map(({ operator, action, subject, reason }) => `${operator} ${action} ${subject}: ${reason}`),
    [
      'alice pause card: ticket 7',
      'alice pause direct: ticket 7',
      'bob pause jobs: ticket 7',
      'bob resume card: moved',
    ],
  );
  await t.rejects(db.deleteFrom('operator_action').execute(), /never deleted/);
  await t.rejects(db.updateTable('operator_action').set({ operator: 'eve' }).execute(), /never changes/);
});

async function startWithAccount(t: Test) {
  const { gateway, account: accountId } = await start(t);
  const adjust = (amountMicroUsd: bigint, key: string = randomUUID()) =>
    adjustBalance(gateway.db, { accountId, amountMicroUsd, key }, ACTION);
  return { gateway, db: gateway.db, accountId, adjust };
}

test('a frozen account spends nothing new, finishes its jobs and can be unfrozen', async (t) => {
  const { gateway, db, accountId } = await startWithAccount(t);
  const { jobId } = (await later(gateway, accountId)).json;
  t.equal(await freezeAccount(db, accountId, true, ACTION), true);
  t.equal(await freezeAccount(db, accountId, true, ACTION), false, 'it was frozen before');
  for (const refused of [await gateway.call('/tts', say(accountId)), await later(gateway, accountId)]) {
    t.strictSame([refused.status, refused.json.error.details.reason], [402, 'account_frozen']);
    t.match(refused.json.error.message, /operator has frozen this account/);
  }
  t.equal(await gateway.balance(accountId), 5_000_000n - 198n, 'only the job from before is held');
  gateway.app.worker?.start();
  t.equal((await untilJob(gateway, jobId, 'completed', 'failed')).json.status, 'completed');
  t.equal(await freezeAccount(db, accountId, false, ACTION), true);
  t.equal((await gateway.call('/tts', say(accountId))).status, 200);
  const actions = await db.selectFrom('operator_action').select(['action', 'subject']).orderBy('id').execute();
  t.strictSame(actions, [
    { action: 'freeze', subject: accountId },
    { action: 'unfreeze', subject: accountId },
  ]);
  t.equal(await freezeAccount(db, randomUUID(), true, ACTION), false);
});

test('an adjustment applies once per key and never overdraws', async (t) => {
  const { gateway, db, accountId, adjust } = await startWithAccount(t);
  const key = randomUUID();
  const outcomes = await Promise.all([1, 2, 3].map(() => adjust(1_000_000n, key)));
  t.strictSame(outcomes.map(({ outcome }) => outcome).sort(), ['adjusted', 'made_before', 'made_before']);
  t.equal((await adjust(2_000_000n, key)).outcome, 'key_of_another');
  t.equal(await gateway.balance(accountId), 6_000_000n);
  t.strictSame(await adjust(-6_000_001n), { outcome: 'too_little', balanceMicroUsd: 6_000_000n });
  t.strictSame([(await adjust(-6_000_000n)).outcome, await gateway.balance(accountId)], ['adjusted', 0n]);
  t.equal(
    (await adjustBalance(db, { accountId: randomUUID(), amountMicroUsd: 1n, key: randomUUID() }, ACTION)).outcome,
    'unknown_account',
  );
  const actions = await db
    .selectFrom('operator_action')
    .innerJoin('transfer', 'transfer.id', 'operator_action.transfer_id')
    .select(['action', 'operator', 'detail', 'amount_micro_usd'])
    .orderBy('operator_action.id')
    .execute();
  t.strictSame(
    actions.map(({ detail, amount_micro_usd }) => [detail, amount_micro_usd]),
    [
      [{ amountMicroUsd: 1_000_000 }, 1_000_000n],
      [{ amountMicroUsd: -6_000_000 }, 6_000_000n],
    ],
  );
  const others = (await audit(db)).filter(({ rule }) => /adjust/.test(rule) || /balance/.test(rule));
  t.strictSame(others, []);
});

test("an adjustment pays the account's debt first", async (t) => {
  const { gateway, db, accountId, adjust } = await startWithAccount(t);
  await db
    .transaction()
    .execute((trx) => applyClawback(trx, 'refund', { accountId, amountMicroUsd: 7_000_000n, reference: 're_1' }));
  t.equal(await gateway.balance(accountId), 0n);
  const adjusted = await adjust(3_000_000n);
  assert.ok(adjusted.outcome === 'adjusted');
  t.strictSame([adjusted.balanceMicroUsd, adjusted.debtPaidMicroUsd], [1_000_000n, 2_000_000n]);
  t.equal(await gateway.balance(accountId), 1_000_000n);
  t.equal((await gateway.call('/tts', say(accountId))).status, 200, 'it owes nothing any more');
});
