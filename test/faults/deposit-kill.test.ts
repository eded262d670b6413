import assert from 'node:assert/strict';
import { type Test, test } from 'tap';
import { findWallet } from '../../src/ledger/accounts.ts';
import { audit } from '../../src/ledger/audit.ts';
import { testChain, wallet } from '../support/chain.ts';
import { doubtfulTurn } from '../support/deposit.ts';
import { type Call, send } from '../support/gateway.ts';
import { killed, letLeasesEnd, startVictim } from '../support/kill.ts';
import { type Kill, killCases } from '../support/kills.ts';
import { until } from '../support/until.ts';
import { challengeOf, sign, startX402Gateway, timesPaid, withPayment } from '../support/x402.ts';

const { chain, skip } = await testChain();

const PATH = '/x402/deposit';
const AMOUNT = 100_000n;
const DEPOSIT: Call = { method: 'POST', json: { amountMicroUsd: Number(AMOUNT) } };

/** A payer with a signed deposit, another process of the deployment, and the settings of the one that is to be killed. */
async function start(t: Test) {
  const gateway = await startX402Gateway(t, chain);
  const payer = await wallet(chain.client, AMOUNT);
  const paid = withPayment(DEPOSIT, await sign(payer, await challengeOf(gateway, PATH, DEPOSIT)));
  const env = {
    BASE_URL: gateway.config.baseUrl,
    DATABASE_URL: gateway.databaseUrl,
    SPEECH_BASE_URL: gateway.upstream.url,
    X402_PAY_TO: gateway.payTo,
    X402_FACILITATOR_URL: gateway.facilitator.url,
    X402_RPC_URL: chain.rpcUrl,
    LOG_LEVEL: 'warn',
  };
  const balance = () => findWallet(gateway.db, payer.address.toLowerCase());
  const payment = async () => gateway.db.selectFrom('x402_payment').selectAll().executeTakeFirst();
  const isAwaited = async () => ((await payment())?.awaited_transaction ?? null) !== null;
  const repeated = async () => {
    const { status, json } = await gateway.call(PATH, paid);
    return status === 200 ? [status, json.creditedMicroUsd, json.alreadyCredited] : [status, json.error.code];
  };
  return { gateway, payer, paid, env, balance, payment, isAwaited, repeated };
}

/** Credited by the reconcilers, without a request of the client's, when a block is on top of the transfer's. */
async function isCreditedByItself({ gateway, payer, balance, repeated }: Awaited<ReturnType<typeof start>>) {
  assert.deepEqual(await doubtfulTurn(gateway), ['done', 0]);
  assert.equal(await balance(), undefined, 'one block is not deep enough');
  assert.deepEqual(await repeated(), [409, 'PAYMENT_REPLAY_PENDING']);
  await chain.client.mine({ blocks: 1 });
  assert.deepEqual(await doubtfulTurn(gateway), ['done', 1]);
  assert.equal(await balance(), AMOUNT);
  assert.deepEqual(await repeated(), [200, 0, true]);
  assert.equal(await balance(), AMOUNT);
  assert.equal(await gateway.revenue(), AMOUNT);
  assert.equal(await timesPaid(chain, payer), 1);
  assert.equal(gateway.facilitator.calls.filter(({ endpoint }) => endpoint === 'settle').length, 1);
  assert.deepEqual(await audit(gateway.db), []);
}

/** Where it has been paid, and only the confirmations are missing. */
const isCreditedAfter = (point: Kill) => async (t: Test) => {
  const started = await start(t);
  const victim = await startVictim(t, point, started.env);
  await assert.rejects(send(victim.url, PATH, started.paid));
  await killed(victim.child);
  assert.equal(await timesPaid(chain, started.payer), 1);
  await letLeasesEnd(started.gateway.db);
  await isCreditedByItself(started);
};

const CASES = killCases<'test/faults/deposit-kill.test.ts', (t: Test) => Promise<void>>(
  'test/faults/deposit-kill.test.ts',
  {
    'deposit reserved': async (t) => {
      const { gateway, payer, paid, env, balance, payment, isAwaited } = await start(t);
      const victim = await startVictim(t, 'deposit reserved', env);
      await assert.rejects(send(victim.url, PATH, paid));
      assert.equal((await payment())?.state, 'reserved');
      await letLeasesEnd(gateway.db);
      await gateway.app.reconcilers.turn();
      assert.equal(await payment(), undefined);
      assert.deepEqual([await timesPaid(chain, payer), await balance()], [0, undefined]);
      assert.deepEqual(await audit(gateway.db), []);

      const again = gateway.call(PATH, paid);
      await until(isAwaited);
      await chain.client.mine({ blocks: 1 });
      const { status, json } = await again;
      assert.deepEqual([status, json.creditedMicroUsd, json.alreadyCredited], [200, Number(AMOUNT), false]);
      assert.deepEqual([await timesPaid(chain, payer), await balance()], [1, AMOUNT]);
      assert.deepEqual(await audit(gateway.db), []);
    },
    'x402 settle answered': isCreditedAfter('x402 settle answered'),
    'deposit awaited': isCreditedAfter('deposit awaited'),
    'x402 settled': async (t) => {
      const { gateway, payer, paid, env, balance, isAwaited, repeated } = await start(t);
      const victim = await startVictim(t, 'x402 settled', env);
      const request = assert.rejects(send(victim.url, PATH, paid));
      await until(isAwaited);
      await chain.client.mine({ blocks: 1 });
      await request;
      assert.equal(await balance(), AMOUNT);
      assert.deepEqual(await repeated(), [200, 0, true]);
      assert.equal(await balance(), AMOUNT);
      assert.equal(await timesPaid(chain, payer), 1);
      assert.deepEqual(await audit(gateway.db), []);
    },
    // The last one, since its end takes the chain's clock past the authorization.
    'x402 settling': async (t) => {
      const { gateway, payer, paid, env, balance, payment, repeated } = await start(t);
      const victim = await startVictim(t, 'x402 settling', env);
      await assert.rejects(send(victim.url, PATH, paid));
      await letLeasesEnd(gateway.db);
      assert.deepEqual(await doubtfulTurn(gateway), ['done', 0]);
      assert.deepEqual(await repeated(), [409, 'PAYMENT_OUTCOME_UNKNOWN']);
      await chain.client.increaseTime({ seconds: 600 });
      await chain.client.mine({ blocks: 3 });
      assert.deepEqual(await doubtfulTurn(gateway), ['done', 1]);
      assert.equal((await payment())?.state, 'failed');
      assert.deepEqual(await repeated(), [402, 'PAYMENT_REQUIRED']);
      assert.deepEqual([await timesPaid(chain, payer), await balance()], [0, undefined]);
      assert.deepEqual(
        gateway.facilitator.calls.map(({ endpoint }) => endpoint),
        ['verify'],
      );
      assert.deepEqual(await audit(gateway.db), []);
    },
  },
);

for (const [point, prove] of CASES) {
  test(`kill -9 at "${point}" credits a deposit once if it was paid`, { skip }, prove);
}
