import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { type Test, test } from 'tap';
import { audit } from '../../src/ledger/audit.ts';
import { takeBack } from '../../src/ledger/debts.ts';
import { adjustBalance, freezeAccount } from '../../src/operators/account-changes.ts';
import { say } from '../journeys/card.ts';
import { startGateway } from '../support/gateway.ts';
import { later, untilJob } from '../support/jobs.ts';
import { startStubUpstream } from '../support/stub-upstream.ts';

const DEED = { operator: 'alice', reason: 'ticket 7' };

async function start(t: Test) {
  const upstream = await startStubUpstream();
  t.teardown(() => upstream.close());
  const gateway = await startGateway(t, { SPEECH_BASE_URL: upstream.url });
  const accountId = await gateway.fund(500);
  const adjust = (amountMicroUsd: bigint, key: string = randomUUID()) =>
    adjustBalance(gateway.db, { accountId, amountMicroUsd, key }, DEED);
  return { gateway, db: gateway.db, accountId, adjust };
}

test('nothing is spent from a frozen account, what it had queued is finished, and it can be unfrozen', async (t) => {
  const { gateway, db, accountId } = await start(t);
  const { jobId } = (await later(gateway, accountId)).json;
  assert.equal(await freezeAccount(db, accountId, true, DEED), true);
  assert.equal(await freezeAccount(db, accountId, true, DEED), false, 'it was frozen before');
  for (const refused of [await gateway.call('/tts', say(accountId)), await later(gateway, accountId)]) {
    assert.equal(refused.status, 402);
    assert.equal(refused.json.error.details.reason, 'account_frozen');
  }
  gateway.app.worker?.start();
  assert.equal((await untilJob(gateway, jobId, 'completed', 'failed')).json.status, 'completed');
  assert.equal(await freezeAccount(db, accountId, false, DEED), true);
  assert.equal((await gateway.call('/tts', say(accountId))).status, 200);
  const actions = await db.selectFrom('operator_action').select(['action', 'subject']).orderBy('id').execute();
  assert.deepEqual(actions, [
    { action: 'freeze', subject: accountId },
    { action: 'unfreeze', subject: accountId },
  ]);
  assert.equal(await freezeAccount(db, randomUUID(), true, DEED), false);
});

test('an adjustment gives and takes, once for its key, and never more than there is', async (t) => {
  const { gateway, db, accountId, adjust } = await start(t);
  const key = randomUUID();
  const outcomes = await Promise.all([1, 2, 3].map(() => adjust(1_000_000n, key)));
  assert.deepEqual(outcomes.map(({ outcome }) => outcome).sort(), ['adjusted', 'made_before', 'made_before']);
  assert.equal((await adjust(2_000_000n, key)).outcome, 'key_of_another');
  assert.equal(await gateway.balance(accountId), 6_000_000n);
  assert.deepEqual(await adjust(-6_000_001n), { outcome: 'too_little', balanceMicroUsd: 6_000_000n });
  assert.equal((await adjust(-6_000_000n)).outcome, 'adjusted');
  assert.equal(await gateway.balance(accountId), 0n);
  assert.equal(
    (await adjustBalance(db, { accountId: randomUUID(), amountMicroUsd: 1n, key: randomUUID() }, DEED)).outcome,
    'unknown_account',
  );
  const actions = await db
    .selectFrom('operator_action')
    .innerJoin('transfer', 'transfer.id', 'operator_action.transfer_id')
    .select(['action', 'operator', 'detail', 'amount_micro_usd'])
    .orderBy('operator_action.id')
    .execute();
  assert.deepEqual(
    actions.map(({ detail, amount_micro_usd }) => [detail, amount_micro_usd]),
    [
      [{ amountMicroUsd: 1_000_000 }, 1_000_000n],
      [{ amountMicroUsd: -6_000_000 }, 6_000_000n],
    ],
  );
  const findings = await audit(db);
  assert.deepEqual(
    findings.filter(({ rule }) => /adjust/.test(rule) || /balance/.test(rule)),
    [],
  );
});

test('what is given to an account that owes pays its debt first', async (t) => {
  const { gateway, db, accountId, adjust } = await start(t);
  await db
    .transaction()
    .execute((trx) => takeBack(trx, 'refund', { accountId, amountMicroUsd: 7_000_000n, reference: 're_1' }));
  assert.equal(await gateway.balance(accountId), 0n);
  const adjusted = await adjust(3_000_000n);
  assert.ok(adjusted.outcome === 'adjusted');
  assert.deepEqual([adjusted.balanceMicroUsd, adjusted.debtPaidMicroUsd], [1_000_000n, 2_000_000n]);
  assert.equal(await gateway.balance(accountId), 1_000_000n);
  assert.equal((await gateway.call('/tts', say(accountId))).status, 200, 'it owes nothing any more');
});
