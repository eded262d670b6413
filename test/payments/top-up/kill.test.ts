/** A process that dies while credit is bought, or paid back: another one, or the repetition, makes the books right. */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { sql } from 'kysely';
import { type Test, test } from 'tap';
import type { TestCheckout } from '../../support/checkout.ts';
import { startChild } from '../../support/child.ts';
import { BASE_URL, type Gateway, send } from '../../support/gateway.ts';
import { killCommand, killed, startVictim } from '../../support/kill.ts';
import { type Kill, killCases } from '../../support/kills.ts';
import { runTurn } from '../../support/reconcile.ts';
import { unguarded } from '../../support/unguarded.ts';
import { assertSound, sold, stand } from './refunded.ts';
import { buy, form, shop, shownAccount } from './shop.ts';

const PURCHASE = 'test/support/purchase-process.ts';
const COMMAND = 'src/speechgate.ts';

const settings = (gateway: Gateway, checkout: TestCheckout) => ({
  ...checkout.env,
  BASE_URL,
  DATABASE_URL: gateway.databaseUrl,
});

/** A process dies at this step of a request: a whole gateway, or only the step that it was asked for. */
type Die = (t: Test, point: Kill, gateway: Gateway, checkout: TestCheckout, back?: string) => Promise<void>;

const wholeGateway: Die = async (t, point, gateway, checkout, back) => {
  const victim = await startVictim(t, point, settings(gateway, checkout));
  const request = back ? send(victim.url, back) : send(victim.url, '/top-up', form({ amount: '700' }));
  await assert.rejects(request);
  await killed(victim.child);
};

const onlyStep: Die = (t, point, gateway, checkout, back) => {
  const session = back && new URL(back, BASE_URL).searchParams.get('session_id');
  const args = session ? ['complete', session] : ['start', '700'];
  return killCommand(t, point, { program: PURCHASE, env: settings(gateway, checkout), args });
};

/** Credits by the reconcilers; tells how many there were. */
async function sweep(gateway: Gateway): Promise<number> {
  let count = 0;
  for (const name of ['top_ups', 'checkout_sweep']) {
    const turn = await runTurn(gateway, name);
    assert.equal(turn.outcome, 'done', String(turn.error));
    count += turn.count;
  }
  return count;
}

/** The buyer gets no answer, finds the checkout's page all the same, and pays. */
const whileOpening = (point: Kill, die: Die) => async (t: Test) => {
  const { gateway, checkout } = await shop(t);
  await die(t, point, gateway, checkout);
  const { data } = await checkout.stripe.checkout.sessions.list();
  assert.equal(data.length, 1);
  assert.equal(await sweep(gateway), 0, 'not paid yet');
  const back = new URL(await checkout.pay(data[0]?.url ?? ''));
  assert.equal(await sweep(gateway), 1);
  const account = shownAccount((await gateway.call(`${back.pathname}${back.search}`)).text);
  assert.deepEqual([await sweep(gateway), await stand(gateway, account)], [0, { balance: 700, debt: 0 }]);
  await assertSound(gateway, checkout);
};

/** The buyer has paid, and gets no answer when they come back. @param credits that are left to the reconcilers */
const whileCrediting = (point: Kill, credits: number, die: Die) => async (t: Test) => {
  const { gateway, checkout } = await shop(t);
  const back = await buy(gateway, checkout, { amount: '700' });
  await die(t, point, gateway, checkout, back);
  assert.equal(await sweep(gateway), credits);
  const account = shownAccount((await gateway.call(back)).text);
  assert.deepEqual([await sweep(gateway), await stand(gateway, account)], [0, { balance: 700, debt: 0 }]);
  await assertSound(gateway, checkout);
};

/** The operator repeats the refund with its key. */
const whileRefunding = (point: Kill, isCommand: boolean) => async (t: Test) => {
  const { gateway, checkout, account, session } = await sold(t);
  const env = { ...settings(gateway, checkout), SPEECHGATE_OPERATOR: 'alice' };
  const key = randomUUID();
  const [program, args] = isCommand
    ? [COMMAND, ['accounts', 'refund', session, '--amount', '2', '--key', key, '--reason', 'ticket 7', '--yes']]
    : [PURCHASE, ['refund', session, '200', key]];
  await killCommand(t, point, { program, env, args });
  const repeated = startChild(t, program, env, args);
  assert.equal(await repeated.ended(), 0, repeated.output());
  assert.equal((await checkout.stripe.refunds.list()).data.length, 1);
  assert.deepEqual(await stand(gateway, account), { balance: 300, debt: 0 });
  const actions = await gateway.db.selectFrom('operator_action').select('action').orderBy('id').execute();
  assert.deepEqual(
    actions.map(({ action }) => action),
    ['ask_refund', 'refund'],
  );
  await assertSound(gateway, checkout);
};

const CASES = killCases<'test/payments/top-up/kill.test.ts', (t: Test) => Promise<void>>(
  'test/payments/top-up/kill.test.ts',
  {
    'purchase recorded': async (t) => {
      const { gateway, checkout } = await shop(t);
      await onlyStep(t, 'purchase recorded', gateway, checkout);
      assert.deepEqual((await checkout.stripe.checkout.sessions.list()).data, []);
      await unguarded(gateway.db, (db) => sql`update top_up set created_at = now() - interval '27 hours'`.execute(db));
      assert.equal(await sweep(gateway), 0);
      const rows = await gateway.db.selectFrom('top_up').select('state').execute();
      assert.deepEqual(rows, [{ state: 'expired' }]);
      await assertSound(gateway, checkout);
    },
    'checkout opened': whileOpening('checkout opened', onlyStep),
    'purchase open': whileOpening('purchase open', wholeGateway),
    'session read': whileCrediting('session read', 1, onlyStep),
    'credit booked': whileCrediting('credit booked', 1, wholeGateway),
    'purchase credited': whileCrediting('purchase credited', 0, onlyStep),
    'refund asked': whileRefunding('refund asked', false),
    'refund made': whileRefunding('refund made', true),
    'refund booked': whileRefunding('refund booked', false),
  },
);

for (const [point, prove] of CASES) {
  test(`kill -9 at "${point}" credits a purchase and books a refund once`, prove);
}
