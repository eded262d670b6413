import assert from 'node:assert/strict';
import { sql } from 'kysely';
import { test } from 'tap';
import { TurnLeases } from '../../../src/reconcile/runner.ts';
import { faults, startFaultyCheckout } from '../../support/faulty-checkout.ts';
import { type Gateway, startGateway } from '../../support/gateway.ts';
import { holdOnCard } from '../../support/holds.ts';
import { operatorCommand } from '../../support/operator-command.ts';

const reconcile = (env: Record<string, string>, ...args: string[]) => operatorCommand(env, 'reconcile', ...args);

async function openAndPay(gateway: Gateway, pay: (session: string) => Promise<void>): Promise<void> {
  const { headers } = await gateway.call('/top-up', {
    method: 'POST',
    headers: { 'content-type': 'application/x-www-form-urlencoded' },
    body: 'amount=700',
  });
  await pay((headers.get('location') ?? '').split('/').at(-1) ?? '');
}

test('speechgate reconcile runs every reconciler once and prints each result', async (t) => {
  const checkout = await startFaultyCheckout(t);
  const card = { STRIPE_SECRET_KEY: checkout.secretKey, STRIPE_API_BASE: checkout.apiBase };
  const gateway = await startGateway(t, card);
  const account = await gateway.fund(500);
  for (let holds = 0; holds < 2; holds++) await holdOnCard(gateway.db, account, 1n);
  await gateway.db.updateTable('transfer').set({ lease_until: sql`now()` }).where('state', '=', 'pending').execute();
  await openAndPay(gateway, checkout.pay);
  const env = { ...card, DATABASE_URL: gateway.databaseUrl };

  checkout.fault = faults['500 without a body'] ?? assert.fail();
  const failed = await reconcile(env);
  t.equal(failed.code, 69, failed.output);
  t.match(failed.output, /^expired_holds +2 done$/m);
  t.match(failed.output, /^top_ups +FAILED after 0 done: the call to the card processor failed/m);
  t.ok(!failed.output.includes('cs_test_') && !failed.output.includes(checkout.secretKey));

  checkout.fault = () => false;
  const done = await new TurnLeases(gateway.db).run('checkout_sweep', 0, () => reconcile(env));
  assert.equal(done?.code, 0, done?.output);
  t.equal(
    done?.output.trim(),
    [
      'expired_holds      0 done',
      'debts              0 done',
      'lost_jobs          0 done',
      'expired_audio      0 done',
      'prepaid_audio      0 done',
      'top_ups            1 done',
      'checkout_sweep     skipped: another process is running this reconciler',
      'clawback_sweep     0 done',
      'clawbacks          0 done',
      'unpaid_purchases   0 done',
      'USDC payments were not reconciled: X402_PAY_TO or X402_RPC_URL is unset.',
    ].join('\n'),
  );

  const off = await reconcile({ DATABASE_URL: gateway.databaseUrl });
  t.equal(off.code, 0);
  t.match(off.output, /Card payments were not reconciled/);
  const unset = await reconcile({});
  t.equal(unset.code, 78);
  t.match(unset.output, /DATABASE_URL is not set/);
});

test('speechgate reconcile --since prints JSON results, and errors without a stack', async (t) => {
  const { databaseUrl } = await startGateway(t);
  const env = { DATABASE_URL: databaseUrl };
  const since = ['--since', new Date(Date.now() - 60_000).toISOString()];
  const told = await reconcile(env, ...since, '--json');
  t.equal(told.code, 0, told.output);
  const { reconcilers, booked, transfers, nobodyKnows } = JSON.parse(told.out);
  t.strictSame([booked, transfers], [[], undefined]);
  t.ok(reconcilers.length > 0 && nobodyKnows.length > 0);
  const stray = await reconcile(env, ...since, '--deposit', `0x${'1'.repeat(64)}`);
  t.strictSame([stray.code, stray.out], [2, '']);
  t.match(stray.err, /^0x1+ contains no authorized transfer to a payee .*\.$/m);
  const x402 = {
    X402_PAY_TO: '0x00000000000000000000000000000000000000a1',
    ...{ X402_FACILITATOR_URL: 'http://127.0.0.1:1', X402_RPC_URL: 'http://127.0.0.1:1' },
  };
  const away = await reconcile({ ...env, ...x402 }, ...since);
  t.equal(away.code, 69, away.output);
  t.match(away.err, /The chain's node gave no usable answer.*\n.*then run the command again/);
  t.ok(!away.output.includes('    at '));
});
