import assert from 'node:assert/strict';
import { sql } from 'kysely';
import { test } from 'tap';
import { contra } from '../../../src/ledger/transfer.ts';
import { testChain, wallet } from '../../support/chain.ts';
import { testCheckout } from '../../support/checkout.ts';
import { startGateway } from '../../support/gateway.ts';
import { operatorCommand } from '../../support/operator-command.ts';
import { unguarded } from '../../support/unguarded.ts';
import { PRICE, payFor, startX402Gateway } from '../../support/x402.ts';

const { chain, skip } = await testChain();

test('audit --external finds uncredited payments, and reconcile credits them', {
  skip,
}, async (t) => {
  const checkout = await testCheckout(t);
  const gateway = await startX402Gateway(t, chain, checkout.env);
  const { db, config } = gateway;
  assert.ok(config.x402?.rpcUrls);
  const env = {
    ...checkout.env,
    DATABASE_URL: gateway.databaseUrl,
    X402_PAY_TO: gateway.payTo,
    X402_FACILITATOR_URL: gateway.facilitator.url,
    X402_RPC_URL: config.x402.rpcUrls.join(),
  };
  const payer = await wallet(chain.client, 10n * PRICE);
  assert.equal((await payFor(gateway, payer)).reply.status, 200);
  const { headers } = await gateway.call('/top-up', {
    method: 'POST',
    headers: { 'content-type': 'application/x-www-form-urlencoded' },
    body: 'amount=700',
  });
  await checkout.pay(headers.get('location') ?? '');
  const sound = await operatorCommand(env, 'audit', '--external');
  assert.deepEqual([sound.code, sound.output.match(/BROKEN|NOT CHECKED/g)], [0, null], sound.output);

  // Ended as if nothing had been paid; the sweep's mark has passed by.
  await sql`update top_up set state = 'expired'`.execute(db);
  await sql`update processor_list set read_until = now()`.execute(db);
  await unguarded(db, async (trx) => {
    await sql`delete from transfer where kind = 'settlement'`.execute(trx);
    await sql`
      update x402_payment set state = 'failed', settled_at = null, transaction_hash = null, log_index = null,
                              receipt = null, failed_at = now()`.execute(trx);
  });
  assert.equal((await operatorCommand(env, 'audit')).code, 0, 'inside nothing shows');
  const broken = await operatorCommand(env, 'audit', '--external');
  assert.equal(broken.code, 1, broken.output);
  assert.match(broken.output, /^BROKEN {2}each paid session of this instance is credited/m);
  assert.match(broken.output, /^BROKEN {2}no refused or failed payment was paid on the chain/m);
  assert.match(broken.output, /paid by 0x[0-9a-f]{64}/);
  assert.doesNotMatch(broken.output, /cs_test_/, 'a session shows an account to whoever holds it');

  // The lists are read again from a day ago, and the chain is asked for the payment again.
  await sql`update processor_list set read_until = now() - interval '1 day'`.execute(db);
  await sql`update x402_payment set state = 'unknown', failed_at = null where state = 'failed'`.execute(db);
  const mended = await operatorCommand(env, 'reconcile');
  assert.match(mended.output, /^checkout_sweep +1 done$/m);
  assert.match(mended.output, /^doubtful_payments +1 done$/m);
  assert.equal((await operatorCommand(env, 'audit', '--external')).code, 0);
});

test('audit --external exits 2 when processor or chain is unavailable', { skip }, async (t) => {
  const gateway = await startX402Gateway(t, chain);
  assert.equal((await payFor(gateway, await wallet(chain.client, PRICE))).reply.status, 200);
  await gateway.fund(500);
  const off = await operatorCommand({ DATABASE_URL: gateway.databaseUrl }, 'audit', '--external');
  assert.equal(off.code, 2, off.output);
  assert.match(off.output, /NOT CHECKED: there are purchases, but STRIPE_SECRET_KEY is unset/);
  assert.match(off.output, /NOT CHECKED: there are payments in USDC/);
  const away = await operatorCommand(
    {
      DATABASE_URL: gateway.databaseUrl,
      ...{ STRIPE_SECRET_KEY: 'sk_test_x', STRIPE_API_BASE: 'http://127.0.0.1:1' },
      ...{ X402_PAY_TO: gateway.payTo, X402_FACILITATOR_URL: 'http://127.0.0.1:1', X402_RPC_URL: 'http://127.0.0.1:1' },
    },
    'audit',
    '--external',
  );
  assert.equal(away.code, 2, away.output);
  assert.match(away.output, /NOT CHECKED: the call to the card processor failed/);
  assert.match(away.output, /NOT CHECKED: The chain's node gave no answer/);
  assert.equal((await operatorCommand({}, 'audit', '--external')).code, 78);
});

test('audit --seal prints a seal, and --verify-seal checks the transfers against it', { skip }, async (t) => {
  const gateway = await startX402Gateway(t, chain);
  const env = { DATABASE_URL: gateway.databaseUrl };
  assert.match((await operatorCommand(env, 'audit', '--seal')).output, /^There is no transfer to seal yet\.$/m);
  await gateway.fund(500);
  const age = (db: typeof gateway.db) =>
    sql`update transfer set created_at = created_at - interval '1 hour', ended_at = ended_at - interval '1 hour'`.execute(
      db,
    );
  await unguarded(gateway.db, age);
  const { code, output } = await operatorCommand(env, 'audit', '--seal');
  assert.equal(code, 0, output);
  const [, id, hash] = /^seal (\d+) ([0-9a-f]{64})$/m.exec(output) ?? [];
  const verify = () => operatorCommand(env, 'audit', `--verify-seal=${id}:${hash}`);
  assert.equal((await verify()).code, 0);
  await unguarded(gateway.db, age);
  const broken = await verify();
  assert.equal(broken.code, 1);
  assert.match(broken.output, /^BROKEN {2}the transfers up to 1 are unchanged since they were sealed$/m);
  assert.equal((await operatorCommand(env, 'audit', '--verify-seal=nonsense')).code, 78);
});

test('audit shortens ids of accounts and sessions unless --secrets is given', async (t) => {
  const gateway = await startGateway(t);
  const { db } = gateway;
  const account = await gateway.fund(500);
  const nobody = '7f9c24e8-3b12-4a35-9f0e-6f1f9d5a2c11';
  const session = 'cs_live_a1B2c3D4e5F6g7H8i9J0';
  await unguarded(db, async (trx) => {
    await sql`update account set balance_micro_usd = 7 where id = ${account}`.execute(trx);
    await sql`update transfer set reference = ${session} where kind = 'top_up'`.execute(trx);
    await sql`
      insert into transfer (kind, state, debit_account_id, credit_account_id, amount_micro_usd, ended_at)
      values ('charge', 'voided', ${nobody}, ${contra.cardRevenue}, 1, now())`.execute(trx);
    await sql`
      insert into operator_action (operator, action, subject, reason, detail)
      values ('alice', 'adjust', ${account}, 'given', ${JSON.stringify({ amountMicroUsd: 5, note: `${account}\u202e` })})`.execute(
      trx,
    );
  });
  const { rows } = await sql<{ id: string; session: string }>`
    select id, session_id as session from top_up`.execute(db);
  const env = { DATABASE_URL: gateway.databaseUrl };
  const secrets = [account, nobody, session, rows[0]?.session ?? ''];
  const short = await operatorCommand(env, 'audit');
  assert.equal(short.code, 1, short.output);
  for (const secret of secrets) {
    assert.ok(!short.output.includes(secret), secret);
    assert.ok(short.output.includes(`${secret.slice(0, secret.startsWith('cs_') ? 16 : 8)}…`), short.output);
  }
  assert.ok(short.output.includes(contra.cardRevenue), 'it is nobody’s, and the same everywhere');
  assert.match(short.output, /Use --secrets to print them whole/);
  const whole = await operatorCommand(env, 'audit', '--secrets');
  assert.equal(whole.code, 1, whole.output);
  for (const secret of secrets) assert.ok(whole.output.includes(secret), whole.output);
  for (const { output } of [short, whole]) assert.doesNotMatch(output, /\u202e/, 'nothing that a terminal obeys');
});
