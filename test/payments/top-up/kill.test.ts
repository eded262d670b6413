/** A process that dies while credit is bought, or paid back: another one, or the repetition, makes the books right. */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { sql } from 'kysely';
import { type Test, test } from 'tap';
import { BASE_URL, type Gateway, send } from '../../support/gateway.ts';
import { killCommand, startVictim } from '../../support/kill.ts';
import { type Kill, killCases } from '../../support/kills.ts';
import { runTurn } from '../../support/reconcile.ts';
import { speechgate } from '../../support/speechgate.ts';
import { unguarded } from '../../support/unguarded.ts';
import { until } from '../../support/until.ts';
import { assertSound, sold, stand } from './refunded.ts';
import { buy, form, shop, shownAccount } from './shop.ts';

/** A shop, and a process of it that dies at this step of a request. */
async function shopThatDies(t: Test, point: Kill) {
  const { gateway, checkout } = await shop(t);
  const { databaseUrl } = gateway;
  const victim = await startVictim(t, point, { ...checkout.env, BASE_URL, DATABASE_URL: databaseUrl });
  const ask = async (path: string, call?: Parameters<typeof send>[2]) => {
    await assert.rejects(send(victim.url, path, call));
    await until(() => victim.child.process.signalCode === 'SIGKILL');
  };
  return { gateway, checkout, ask };
}

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
const whileOpening = (point: Kill) => async (t: Test) => {
  const { gateway, checkout, ask } = await shopThatDies(t, point);
  await ask('/top-up', form({ amount: '700' }));
  const { data } = await checkout.stripe.checkout.sessions.list();
  assert.equal(data.length, 1);
  assert.equal(await sweep(gateway), 0, 'not paid yet');
  const back = new URL(await checkout.pay(data[0]?.url ?? ''));
  assert.equal(await sweep(gateway), 1);
  const account = shownAccount((await gateway.call(`${back.pathname}${back.search}`)).text);
  assert.deepEqual([await sweep(gateway), await stand(gateway, account)], [0, { balance: 700, debt: 0 }]);
  await assertSound(gateway, checkout);
};

/** The buyer has paid, and gets no answer when he comes back. @param credits that are left to the reconcilers */
const whileCrediting = (point: Kill, credits: number) => async (t: Test) => {
  const { gateway, checkout, ask } = await shopThatDies(t, point);
  const back = await buy(gateway, checkout, { amount: '700' });
  await ask(back);
  assert.equal(await sweep(gateway), credits);
  const account = shownAccount((await gateway.call(back)).text);
  assert.deepEqual([await sweep(gateway), await stand(gateway, account)], [0, { balance: 700, debt: 0 }]);
  await assertSound(gateway, checkout);
};

/** The operator repeats the refund with its key. */
const whileRefunding = (point: Kill) => async (t: Test) => {
  const { gateway, checkout, account, session } = await sold(t);
  const env = { ...checkout.env, DATABASE_URL: gateway.databaseUrl, SPEECHGATE_OPERATOR: 'alice' };
  const refund = [
    'accounts',
    'refund',
    session,
    '--amount',
    '200',
    '--key',
    randomUUID(),
    '--reason',
    'ticket 7',
    '--yes',
  ];
  await killCommand(t, point, { program: 'src/speechgate.ts', env, args: refund });
  const repeated = await speechgate(env, ...refund);
  assert.equal(repeated.code, 0, repeated.output);
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
      const { gateway, checkout, ask } = await shopThatDies(t, 'purchase recorded');
      await ask('/top-up', form({ amount: '700' }));
      assert.deepEqual((await checkout.stripe.checkout.sessions.list()).data, []);
      await unguarded(gateway.db, (db) => sql`update top_up set created_at = now() - interval '27 hours'`.execute(db));
      assert.equal(await sweep(gateway), 0);
      const rows = await gateway.db.selectFrom('top_up').select('state').execute();
      assert.deepEqual(rows, [{ state: 'expired' }]);
      await assertSound(gateway, checkout);
    },
    'checkout opened': whileOpening('checkout opened'),
    'purchase open': whileOpening('purchase open'),
    'session read': whileCrediting('session read', 1),
    'credit booked': whileCrediting('credit booked', 1),
    'purchase credited': whileCrediting('purchase credited', 0),
    'refund asked': whileRefunding('refund asked'),
    'refund made': whileRefunding('refund made'),
    'refund booked': whileRefunding('refund booked'),
  },
);

for (const [point, prove] of CASES) {
  test(`kill -9 at "${point}" credits a purchase and books a refund once`, prove);
}
