import assert from 'node:assert/strict';
import { sql } from 'kysely';
import { test } from 'tap';
import { placeCardHold } from '../../src/ledger/card-holds.ts';
import { voidHold } from '../../src/ledger/hold.ts';
import { runTurn, runWithoutTurn } from '../support/reconcile.ts';
import { CLAWBACKS } from './clawback-cases.ts';
import { assertSound, followProcessor, sell, sold, spend, stand } from './refunded.ts';
import { buy, shop, shownAccount } from './shop.ts';

for (const [name, spent, steps] of CLAWBACKS) {
  test(`R61: ${name}`, async (t) => {
    const { gateway, checkout, ...sale } = await sold(t);
    if (spent > 0) await spend(gateway, sale.account, BigInt(spent) * 10_000n);
    for (const [step, balance, debt] of steps) {
      await step(checkout, sale);
      await followProcessor(gateway);
      assert.deepEqual(await stand(gateway, sale.account), { balance, debt });
      assert.equal(await followProcessor(gateway), 0, 'once');
      await assertSound(gateway, checkout);
    }
  });
}

test('R61: a debtor buys nothing but credit, which pays the debt first, and the page says so', async (t) => {
  const { gateway, checkout, account, session } = await sold(t);
  await spend(gateway, account, 4_500_000n);
  await checkout.refund({ session });
  await followProcessor(gateway);
  assert.deepEqual(await stand(gateway, account), { balance: 0, debt: 450 });

  const headers = { 'x-credit-account': account };
  const refused = await gateway.call('/tts?text=Hello', { headers });
  assert.equal(refused.status, 402);
  const { amount, error } = refused.json;
  assert.deepEqual([error.details.reason, error.details.debtMicroUsd, amount], ['account_indebted', 4_500_000, '500']);
  assert.match(error.message, /refund or dispute took back more than was left/);
  const asynchronous = await gateway.call('/tts?text=Hello&async=true', { headers });
  assert.deepEqual([asynchronous.status, asynchronous.json.error.details.reason], [402, 'account_indebted']);
  assert.deepEqual([(await gateway.call(`/credits/${account}`)).json.balanceMicroUsd], [0]);

  const page = await gateway.call(await buy(gateway, checkout, { amount: '500', accountId: account }));
  assert.match(page.text, /\$4\.50 of it paid for that\. Nothing is owed any more\./);
  assert.match(page.text, /<dd class="amount">\$0\.50<\/dd>/);
  assert.deepEqual(await stand(gateway, account), { balance: 50, debt: 0 });
  await spend(gateway, account, 500_000n);
  await assertSound(gateway, checkout);
});

test('R61: what a purchase leaves of a debt is shown, and still bars the account', async (t) => {
  const { gateway, checkout, account } = await sold(t);
  await sell(gateway, checkout, 1000, account);
  await spend(gateway, account, 15_000_000n);
  const { data } = await checkout.stripe.checkout.sessions.list();
  for (const { id } of data) await checkout.openDispute({ session: id });
  assert.equal(data.length, 2);
  await followProcessor(gateway);
  assert.deepEqual(await stand(gateway, account), { balance: 0, debt: 1500 });
  const back = await buy(gateway, checkout, { amount: '500', accountId: account });
  assert.match((await gateway.call(back)).text, /\$5\.00 of it paid for that\. \$10\.00 is still owed/);
  assert.match((await gateway.call(back)).text, /\$10\.00 is still owed/);
  const refused = await gateway.call('/tts?text=Hello', { headers: { 'x-credit-account': account } });
  assert.deepEqual([refused.json.error.details.debtMicroUsd, refused.json.amount], [10_000_000, '1001'], 'R11');
  await assertSound(gateway, checkout);
});

test('R61: a frozen account is refused with the reason', async (t) => {
  const { gateway, account } = await sold(t);
  await sql`update account set frozen_at = now() where id = ${account}`.execute(gateway.db);
  const refused = await gateway.call('/tts?text=Hello', { headers: { 'x-credit-account': account } });
  assert.deepEqual([refused.status, refused.json.error.details.reason], [402, 'account_frozen']);
  assert.match(refused.json.error.message, /operator of this service lets nothing be spent/);
  assert.equal(await gateway.balance(account), 5_000_000n);
});

test('R61: a refund of a purchase that nobody has credited credits it first', async (t) => {
  const { gateway, checkout } = await shop(t);
  const back = await buy(gateway, checkout, { amount: '700' });
  const session = new URL(back, 'http://127.0.0.1').searchParams.get('session_id') ?? '';
  await checkout.refund({ session, amountCents: 200 });
  assert.equal(await followProcessor(gateway), 1);
  const account = shownAccount((await gateway.call(back)).text);
  assert.deepEqual(await stand(gateway, account), { balance: 500, debt: 0 });
  await assertSound(gateway, checkout);
});

test('R61: refunds and disputes of what others sold through the same processor are left alone', async (t) => {
  const { gateway, checkout, account } = await sold(t);
  const other = await shop(t, checkout.env);
  // The databases of tests are copies of one.
  await sql`update instance set id = gen_random_uuid()`.execute(other.gateway.db);
  const sale = await sell(other.gateway, checkout, 500);
  await checkout.refund({ session: sale.session });
  assert.equal(await followProcessor(gateway), 0);
  assert.deepEqual(await stand(gateway, account), { balance: 500, debt: 0 });
  assert.equal(await followProcessor(other.gateway), 1);
  await assertSound(gateway, checkout);
  await assertSound(other.gateway, checkout);
});

test('R61: many who read the same lists at once book each refund and dispute once', async (t) => {
  const { gateway, checkout, account } = await sold(t);
  const sales = await Promise.all(Array.from({ length: 6 }, () => sell(gateway, checkout, 500, account)));
  await Promise.all(
    sales.map(({ session }, index) => (index % 2 ? checkout.refund({ session }) : checkout.openDispute({ session }))),
  );
  const counts = await Promise.all(Array.from({ length: 8 }, () => runWithoutTurn(gateway, 'clawback_sweep')));
  assert.equal(
    counts.reduce((sum, count) => sum + count, 0),
    6,
  );
  assert.deepEqual(await stand(gateway, account), { balance: 500, debt: 0 });
  await assertSound(gateway, checkout);
});

test('R61: a dispute that is won keeps its place among as many others as are asked for in a turn', async (t) => {
  const { gateway, checkout, account, session } = await sold(t);
  const { id } = await checkout.openDispute({ session: (await sell(gateway, checkout, 500, account)).session });
  for (let others = 0; others < 25; others++) await checkout.refund({ session, amountCents: 1 });
  assert.equal(await followProcessor(gateway), 26);
  assert.deepEqual(await stand(gateway, account), { balance: 475, debt: 0 });
  await checkout.updateDispute(id, 'won');
  const makeDue = (seconds: number, kind: 'refund' | 'dispute') =>
    sql`update clawback set next_check_at = now() - make_interval(secs => ${seconds}) where kind = ${kind}`.execute(
      gateway.db,
    );
  await makeDue(60, 'dispute');
  for (const secondsOfOthers of [120, 30]) {
    await makeDue(secondsOfOthers, 'refund');
    await runTurn(gateway, 'clawback_sweep');
    await runTurn(gateway, 'clawbacks');
  }
  assert.deepEqual(await stand(gateway, account), { balance: 975, debt: 0 });
  await assertSound(gateway, checkout);
});

test('R61: what comes back to a debtor otherwise than by a credit pays the debt too', async (t) => {
  const { gateway, checkout, account, session } = await sold(t);
  const placed = await placeCardHold(gateway.db, account, 2_000_000n, 60);
  assert.ok(placed.outcome === 'held');
  await checkout.refund({ session });
  await followProcessor(gateway);
  assert.deepEqual(await stand(gateway, account), { balance: 0, debt: 200 });
  await voidHold(gateway.db, placed.hold);
  assert.deepEqual(await stand(gateway, account), { balance: 200, debt: 200 });
  assert.equal((await runTurn(gateway, 'debts')).count, 1);
  assert.deepEqual(await stand(gateway, account), { balance: 0, debt: 0 });
  const { outcome } = await placeCardHold(gateway.db, account, 1n, 60);
  assert.equal(outcome, 'insufficient_funds', 'no longer barred');
  await assertSound(gateway, checkout);
});
