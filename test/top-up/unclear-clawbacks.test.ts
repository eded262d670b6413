import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { type Logger, pino } from 'pino';
import { type Test, test } from 'tap';
import { auditClawbacks } from '../../src/audit/processor-clawbacks.ts';
import { audit } from '../../src/ledger/audit.ts';
import { adjustBalance } from '../../src/operators/account-changes.ts';
import type { TurnResult } from '../../src/reconcile/reconciler.ts';
import { Processor } from '../../src/top-up/processor.ts';
import { open, purchase, setUp } from '../reconcile/open-purchases.ts';
import { UNCLEAR } from '../support/audit-rules.ts';
import type { FaultyCheckout } from '../support/faulty-checkout.ts';
import type { Gateway } from '../support/gateway.ts';
import { testRunner } from '../support/reconcile.ts';

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
async function sell(gateway: Gateway, checkout: FaultyCheckout) {
  const session = await open(gateway);
  await checkout.pay(session);
  assert.equal((await gateway.call(`/top-up/complete?session_id=${session}`)).status, 200);
  return { session, account: (await purchase(gateway, session)).account_id };
}

/** Of three purchases, each with a refund or dispute of 200 cents, the processor tells that of the middle one otherwise. */
async function scene(t: Test, kind: Kind, change: Told) {
  const { checkout, gateway } = await setUp(t);
  const sales = [await sell(gateway, checkout), await sell(gateway, checkout), await sell(gateway, checkout)];
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
  ['a dispute of a server without such entries', 'dispute', { status: 'x', balance_transactions: undefined }, 700],
  ['a refund that took the money', 'refund', { status: 'blocked' }, 500],
  ['a refund that gave it back', 'refund', { status: 'blocked', failure_balance_transaction: 'txn_1' }, 700],
  ['a refund that took nothing', 'refund', { status: 'blocked', balance_transaction: null }, 700],
  ['a refund without a status', 'refund', { status: null }, 500],
  ['a status that names a property of objects', 'refund', { status: 'constructor' }, 500],
];

for (const [name, kind, change, left] of UNKNOWN) {
  test(`R61: an unknown status is booked by what it moved: ${name}`, async (t) => {
    const { gateway, checkout, id, sweep, balances, lines } = await scene(t, kind, change);
    assert.deepEqual(balances, [500, left, 500]);
    assert.equal(sweep?.outcome, 'done', String(sweep?.error));
    assert.ok(await readList(gateway, kind), 'the list is read to its end');
    assert.equal(lines.length, 1, 'logged once');
    assert.match(String(lines[0]?.msg), new RegExp(`${id}.*status`));
    assert.deepEqual(await brokenRules(gateway), [UNCLEAR]);
    assert.deepEqual((await outside(gateway, checkout)).findings, []);
  });
}

test('R61: a status that is known again by then makes the books whole', async (t) => {
  const { gateway, checkout, id, account } = await scene(t, 'dispute', { status: 'escalated', ...withdrawn });
  checkout.rewrite = (_path, answer) => answer;
  await checkout.updateDispute(id, 'won');
  const log = pino({ level: 'silent' });
  await run(gateway, log);
  await testRunner(gateway, { names: ['clawbacks'], log }).turn();
  assert.equal(await gateway.balance(account), 7_000_000n);
  assert.deepEqual(await brokenRules(gateway), []);
});

for (const kind of ['refund', 'dispute'] as const) {
  test(`R61: a ${kind} in another currency moves nothing, is logged, and named by the audit`, async (t) => {
    const { gateway, checkout, id, account, sweep, balances, lines } = await scene(t, kind, { currency: 'eur' });
    assert.deepEqual(balances, [500, 700, 500]);
    assert.equal(sweep?.outcome, 'done', String(sweep?.error));
    assert.ok(await readList(gateway, kind), 'the list is read to its end');
    assert.equal(lines.length, 1);
    assert.match(String(lines[0]?.msg), new RegExp(`${id}.* eur`));
    const [finding, ...others] = await audit(gateway.db);
    assert.deepEqual([finding?.rule, finding?.breaches.map((breach) => breach.id), others], [UNCLEAR, [id], []]);
    assert.deepEqual((await outside(gateway, checkout)).findings, []);

    // What the operator decides about it is written down, and ends the finding.
    const deed = { operator: 'ann', reason: `what ${id} took, at the rate of that day` };
    await adjustBalance(gateway.db, { accountId: account, amountMicroUsd: -2_200_000n, key: randomUUID() }, deed);
    assert.deepEqual(await brokenRules(gateway), []);
  });
}

test('R61: what others sold in another currency is neither logged nor named', async (t) => {
  const { checkout, gateway } = await setUp(t);
  const sale = await sell(gateway, checkout);
  const { id } = await checkout.refund({ session: sale.session });
  checkout.rewrite = (_path, answer) => {
    const body = JSON.parse(answer);
    for (const each of [body, ...(body.data ?? [])]) {
      if (each.id === id) Object.assign(each, { currency: 'eur', payment_intent: 'pi_of_others' });
    }
    return JSON.stringify(body);
  };
  const lines: string[] = [];
  await run(gateway, pino({ level: 'error' }, { write: (line) => lines.push(line) }));
  assert.deepEqual([lines, await brokenRules(gateway)], [[], []]);
});

const UNUSABLE: readonly [name: string, change: Told][] = [
  ['without an amount', { amount: null }],
  ['of nothing', { amount: 0 }],
  ['of more than a column holds', { amount: 2 ** 40 }],
  ['without a time', { created: null }],
  ['without a currency', { currency: undefined }],
];

for (const [name, change] of UNUSABLE) {
  test(`R61: a refund ${name} is logged, and keeps no other from being booked`, async (t) => {
    const { gateway, checkout, id, sweep, balances, lines } = await scene(t, 'refund', change);
    assert.deepEqual(balances, [500, 700, 500]);
    assert.equal(sweep?.outcome, 'done', String(sweep?.error));
    assert.ok(await readList(gateway, 'refund'), 'the list is read to its end');
    assert.ok(lines.some(({ msg }) => String(msg).includes(id)));
    assert.deepEqual(await brokenRules(gateway), []);
    const { findings } = await outside(gateway, checkout);
    assert.deepEqual(
      findings.flatMap(({ breaches }) => breaches.map((breach) => breach.id)),
      [id],
      'the audit of the outside names it',
    );
  });
}
