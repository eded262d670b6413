import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { sql } from 'kysely';
import { type Logger, pino } from 'pino';
import { type Test, test } from 'tap';
import { adjustBalance } from '../../../src/ledger/account-changes.ts';
import { audit } from '../../../src/ledger/audit.ts';
import { voidHold } from '../../../src/ledger/hold.ts';
import { auditClawbacks } from '../../../src/operators/audit/processor-clawbacks.ts';
import { Processor } from '../../../src/payments/top-up/processor.ts';
import type { TurnResult } from '../../../src/reconcile/reconciler.ts';
import { open, purchase, setUp } from '../../reconcile/open-purchases.ts';
import { UNCLEAR } from '../../support/audit-rules.ts';
import type { FaultyCheckout } from '../../support/faulty-checkout.ts';
import type { Gateway } from '../../support/gateway.ts';
import { holdOnCard } from '../../support/holds.ts';
import { runTurn, runWithoutTurn, testRunner } from '../../support/reconcile.ts';
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
      t.strictSame(await stand(gateway, sale.account), { balance, debt });
      t.equal(await followProcessor(gateway), 0, 'once');
      await assertSound(gateway, checkout);
    }
  });
}

test('R61: an account in debt can only buy credit, which pays the debt first', async (t) => {
  const { gateway, checkout, account, session } = await sold(t);
  await spend(gateway, account, 4_500_000n);
  await checkout.refund({ session });
  await followProcessor(gateway);
  t.strictSame(await stand(gateway, account), { balance: 0, debt: 450 });

  const headers = { 'x-credit-account': account };
  const refused = await gateway.call('/tts?text=Hello', { headers });
  t.equal(refused.status, 402);
  const { amount, error } = refused.json;
  t.strictSame([error.details.reason, error.details.debtMicroUsd, amount], ['account_indebted', 4_500_000, '500']);
  t.match(error.message, /left this account in debt/);
  const asynchronous = await gateway.call('/tts?text=Hello&async=true', { headers });
  t.strictSame([asynchronous.status, asynchronous.json.error.details.reason], [402, 'account_indebted']);
  t.strictSame([(await gateway.call(`/credits/${account}`)).json.balanceMicroUsd], [0]);

  const page = await gateway.call(await buy(gateway, checkout, { amount: '500', accountId: account }));
  t.match(page.text, /\$4\.50 of your payment paid this debt\. Nothing is owed any more\./);
  t.match(page.text, /<dd class="amount">\$0\.50<\/dd>/);
  t.strictSame(await stand(gateway, account), { balance: 50, debt: 0 });
  await spend(gateway, account, 500_000n);
  await assertSound(gateway, checkout);
});

test('R61: the rest of a debt is shown and still blocks the account', async (t) => {
  const { gateway, checkout, account } = await sold(t);
  await sell(gateway, checkout, 1000, account);
  await spend(gateway, account, 15_000_000n);
  const { data } = await checkout.stripe.checkout.sessions.list();
  for (const { id } of data) await checkout.openDispute({ session: id });
  t.equal(data.length, 2);
  await followProcessor(gateway);
  t.strictSame(await stand(gateway, account), { balance: 0, debt: 1500 });
  const back = await buy(gateway, checkout, { amount: '500', accountId: account });
  t.match((await gateway.call(back)).text, /\$5\.00 of your payment paid this debt\. \$10\.00 is still owed/);
  t.match((await gateway.call(back)).text, /\$10\.00 is still owed/);
  const refused = await gateway.call('/tts?text=Hello', { headers: { 'x-credit-account': account } });
  t.strictSame([refused.json.error.details.debtMicroUsd, refused.json.amount], [10_000_000, '1001'], 'R11');
  await assertSound(gateway, checkout);
});

test('R61: a refund of an uncredited purchase credits it first', async (t) => {
  const { gateway, checkout } = await shop(t);
  const back = await buy(gateway, checkout, { amount: '700' });
  const session = new URL(back, 'http://127.0.0.1').searchParams.get('session_id') ?? '';
  await checkout.refund({ session, amountCents: 200 });
  t.equal(await followProcessor(gateway), 1);
  const account = shownAccount((await gateway.call(back)).text);
  t.strictSame(await stand(gateway, account), { balance: 500, debt: 0 });
  await assertSound(gateway, checkout);
});

test("R61: refunds and disputes of another seller's sales are ignored", async (t) => {
  const { gateway, checkout, account } = await sold(t);
  const other = await shop(t, checkout.env);
  // The databases of tests are copies of one.
  await sql`update instance set id = gen_random_uuid()`.execute(other.gateway.db);
  const sale = await sell(other.gateway, checkout, 500);
  await checkout.refund({ session: sale.session });
  t.equal(await followProcessor(gateway), 0);
  t.strictSame(await stand(gateway, account), { balance: 500, debt: 0 });
  t.equal(await followProcessor(other.gateway), 1);
  await assertSound(gateway, checkout);
  await assertSound(other.gateway, checkout);
});

test('R61: concurrent readers of the lists book each refund and dispute once', async (t) => {
  const { gateway, checkout, account } = await sold(t);
  const sales = await Promise.all(Array.from({ length: 6 }, () => sell(gateway, checkout, 500, account)));
  await Promise.all(
    sales.map(({ session }, index) => (index % 2 ? checkout.refund({ session }) : checkout.openDispute({ session }))),
  );
  const counts = await Promise.all(Array.from({ length: 8 }, () => runWithoutTurn(gateway, 'clawback_sweep')));
  t.equal(
    counts.reduce((sum, count) => sum + count, 0),
    6,
  );
  t.strictSame(await stand(gateway, account), { balance: 500, debt: 0 });
  await assertSound(gateway, checkout);
});

test('R61: a won dispute is checked in a turn however many others are due', async (t) => {
  const { gateway, checkout, account, session } = await sold(t);
  const { id } = await checkout.openDispute({ session: (await sell(gateway, checkout, 500, account)).session });
  for (let others = 0; others < 25; others++) await checkout.refund({ session, amountCents: 1 });
  t.equal(await followProcessor(gateway), 26);
  t.strictSame(await stand(gateway, account), { balance: 475, debt: 0 });
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
  t.strictSame(await stand(gateway, account), { balance: 975, debt: 0 });
  await assertSound(gateway, checkout);
});

test('R61: a voided hold pays the debt too', async (t) => {
  const { gateway, checkout, account, session } = await sold(t);
  const placed = await holdOnCard(gateway.db, account, 2_000_000n);
  assert.ok(placed.outcome === 'placed');
  await checkout.refund({ session });
  await followProcessor(gateway);
  t.strictSame(await stand(gateway, account), { balance: 0, debt: 200 });
  await voidHold(gateway.db, placed.hold);
  t.strictSame(await stand(gateway, account), { balance: 200, debt: 200 });
  t.equal((await runTurn(gateway, 'debts')).count, 1);
  t.strictSame(await stand(gateway, account), { balance: 0, debt: 0 });
  const { outcome } = await holdOnCard(gateway.db, account, 1n);
  t.equal(outcome, 'insufficient_funds', 'no longer barred');
  await assertSound(gateway, checkout);
});

type Told = Record<string, unknown>;
type Kind = 'refund' | 'dispute';

/** The processor tells one refund or dispute otherwise from now on, in its lists and by itself. */
function tell(checkout: FaultyCheckout, id: string, change: Told): void {
  checkout.rewrite = (_path, answer) => {
    const body = JSON.parse(answer);
    for (const each of [body, ...(body.data ?? [])]) if (each.id === id) Object.assign(each, change);
    return JSON.stringify(body);
  };
}

/** A purchase of 700 cents that was credited. */
async function sellFaultily(gateway: Gateway, checkout: FaultyCheckout) {
  const session = await open(gateway);
  await checkout.pay(session);
  assert.equal((await gateway.call(`/top-up/complete?session_id=${session}`)).status, 200);
  return { session, account: (await purchase(gateway, session)).account_id };
}

/** Of three purchases, each with a refund or dispute of 200 cents, the processor tells that of the middle one otherwise. */
async function scene(t: Test, kind: Kind, change: Told) {
  const { checkout, gateway } = await setUp(t);
  const sales = [
    await sellFaultily(gateway, checkout),
    await sellFaultily(gateway, checkout),
    await sellFaultily(gateway, checkout),
  ];
  const ids: string[] = [];
  for (const { session } of sales) {
    const made = kind === 'refund' ? checkout.refund : checkout.openDispute;
    ids.push((await made({ session, amountCents: 200 })).id);
  }
  const [, id = ''] = ids;
  tell(checkout, id, change);
  const lines: Told[] = [];
  const log = pino({ level: 'error' }, { write: (line) => lines.push(JSON.parse(line)) });
  const [sweep] = await run(gateway, log);
  const balances = await Promise.all(sales.map(async ({ account }) => Number(await gateway.balance(account)) / 10_000));
  return { gateway, checkout, id, account: sales[1]?.account ?? '', sweep, balances, lines };
}

const run = (gateway: Gateway, log: Logger): Promise<TurnResult[]> =>
  testRunner(gateway, { names: ['clawback_sweep'], log }).turn();

const brokenRules = async ({ db }: Gateway) => (await audit(db)).map(({ rule }) => rule);

const outside = ({ db }: Gateway, { secretKey, apiBase }: FaultyCheckout) =>
  auditClawbacks(db, new Processor(secretKey, apiBase), () => {});

const readList = async ({ db }: Gateway, kind: Kind) =>
  (await db.selectFrom('processor_list').selectAll().where('name', '=', `${kind}s`).executeTakeFirstOrThrow())
    .pass_started_at === null;

const withdrawn = { balance_transactions: [{ amount: -200 }] };
const reinstated = { balance_transactions: [{ amount: -200 }, { amount: 200 }] };

const UNKNOWN: readonly [name: string, kind: Kind, change: Told, left: number][] = [
  ['a dispute that took the money', 'dispute', { status: 'escalated', ...withdrawn }, 500],
  ['a dispute that gave it back', 'dispute', { status: 'escalated', ...reinstated }, 700],
  ['a dispute that took nothing', 'dispute', { status: 'escalated', balance_transactions: [] }, 700],
  ['a dispute without balance entries', 'dispute', { status: 'x', balance_transactions: undefined }, 700],
  ['a refund that took the money', 'refund', { status: 'blocked' }, 500],
  ['a refund that gave it back', 'refund', { status: 'blocked', failure_balance_transaction: 'txn_1' }, 700],
  ['a refund that took nothing', 'refund', { status: 'blocked', balance_transaction: null }, 700],
  ['a refund without a status', 'refund', { status: null }, 500],
  ['a status that is a property name', 'refund', { status: 'constructor' }, 500],
];

for (const [name, kind, change, left] of UNKNOWN) {
  test(`R61: an unknown status is booked by effect: ${name}`, async (t) => {
    const { gateway, checkout, id, sweep, balances, lines } = await scene(t, kind, change);
    t.strictSame(balances, [500, left, 500]);
    t.equal(sweep?.outcome, 'done', String(sweep?.error));
    t.ok(await readList(gateway, kind), 'the list is read to its end');
    t.equal(lines.length, 1, 'logged once');
    t.match(String(lines[0]?.msg), new RegExp(`${id}.*status`));
    t.strictSame(await brokenRules(gateway), [UNCLEAR]);
    t.strictSame((await outside(gateway, checkout)).findings, []);
  });
}

test('R61: a status that is known again corrects the balance', async (t) => {
  const { gateway, checkout, id, account } = await scene(t, 'dispute', { status: 'escalated', ...withdrawn });
  checkout.rewrite = (_path, answer) => answer;
  await checkout.updateDispute(id, 'won');
  const log = pino({ level: 'silent' });
  await run(gateway, log);
  await testRunner(gateway, { names: ['clawbacks'], log }).turn();
  t.equal(await gateway.balance(account), 7_000_000n);
  t.strictSame(await brokenRules(gateway), []);
});

for (const kind of ['refund', 'dispute'] as const) {
  test(`R61: a ${kind} in another currency changes nothing, but log and audit name it`, async (t) => {
    const { gateway, checkout, id, account, sweep, balances, lines } = await scene(t, kind, { currency: 'eur' });
    t.strictSame(balances, [500, 700, 500]);
    t.equal(sweep?.outcome, 'done', String(sweep?.error));
    t.ok(await readList(gateway, kind), 'the list is read to its end');
    t.equal(lines.length, 1);
    t.match(String(lines[0]?.msg), new RegExp(`${id}.* eur`));
    const [finding, ...others] = await audit(gateway.db);
    t.strictSame([finding?.rule, finding?.breaches.map((breach) => breach.id), others], [UNCLEAR, [id], []]);
    t.strictSame((await outside(gateway, checkout)).findings, []);

    // What the operator decides about it is written down, and ends the finding.
    const operatorAction = { operator: 'ann', reason: `what ${id} took, at the rate of that day` };
    await adjustBalance(
      gateway.db,
      { accountId: account, amountMicroUsd: -2_200_000n, key: randomUUID() },
      operatorAction,
    );
    t.strictSame(await brokenRules(gateway), []);
  });
}

test("R61: another seller's refund in another currency is not reported", async (t) => {
  const { checkout, gateway } = await setUp(t);
  const sale = await sellFaultily(gateway, checkout);
  const { id } = await checkout.refund({ session: sale.session });
  tell(checkout, id, { currency: 'eur', payment_intent: 'pi_of_others' });
  const lines: string[] = [];
  await run(gateway, pino({ level: 'error' }, { write: (line) => lines.push(line) }));
  t.strictSame([lines, await brokenRules(gateway)], [[], []]);
});

const UNUSABLE: readonly [name: string, change: Told][] = [
  ['without an amount', { amount: null }],
  ['of nothing', { amount: 0 }],
  ['of more than a column holds', { amount: 2 ** 40 }],
  ['without a time', { created: null }],
  ['without a currency', { currency: undefined }],
];

for (const [name, change] of UNUSABLE) {
  test(`R61: a refund ${name} is logged and blocks no other`, async (t) => {
    const { gateway, checkout, id, sweep, balances, lines } = await scene(t, 'refund', change);
    t.strictSame(balances, [500, 700, 500]);
    t.equal(sweep?.outcome, 'done', String(sweep?.error));
    t.ok(await readList(gateway, 'refund'), 'the list is read to its end');
    t.ok(lines.some(({ msg }) => String(msg).includes(id)));
    t.strictSame(await brokenRules(gateway), []);
    const { findings } = await outside(gateway, checkout);
    t.strictSame(
      findings.flatMap(({ breaches }) => breaches.map((breach) => breach.id)),
      [id],
      'the audit of the outside names it',
    );
  });
}
