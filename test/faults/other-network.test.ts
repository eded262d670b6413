import assert from 'node:assert/strict';
import { sql } from 'kysely';
import { type Test, test } from 'tap';
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts';
import { DEFAULT_ASSET, DEFAULT_NETWORK } from '../../src/config/network.ts';
import { openDatabase } from '../../src/db/database.ts';
import { migrate } from '../../src/db/migrate.ts';
import { audit } from '../../src/ledger/audit.ts';
import { claimInstance } from '../../src/ledger/database-identity.ts';
import { startChild } from '../support/child.ts';
import { testDatabase } from '../support/database.ts';
import { DEPOSIT_PATH, depositOf } from '../support/deposit.ts';
import { type Gateway, startGateway } from '../support/gateway.ts';
import { operatorCommand } from '../support/operator-command.ts';
import {
  domainOf,
  fundedWallet,
  insertPaymentInDoubt,
  startPrepaidGateway,
  withCredential,
} from '../support/prepaid.ts';
import { startRpcNode } from '../support/rpc-node.ts';
import { startTcpProxy } from '../support/tcp-proxy.ts';
import { unguarded } from '../support/unguarded.ts';
import { HELLO } from '../support/x402.ts';

const TEST_NETWORK = 'eip155:84532';
const TEST_ASSET = '0x036CbD53842c5426634e7929541eC2318f3dCF7e';
const ON_TEST_NETWORK = { X402_NETWORK: TEST_NETWORK, X402_ASSET: TEST_ASSET };
const PAYEE = '0x00000000000000000000000000000000000000A1';
const REAL = { network: DEFAULT_NETWORK, asset: DEFAULT_ASSET.toLowerCase() };
/** Names the setting and the fix. */
const REFUSAL = new RegExp(
  `The database in DATABASE_URL is for the token ${TEST_ASSET.toLowerCase()} on ${TEST_NETWORK}, but X402_ASSET and X402_NETWORK ` +
    `are ${REAL.asset} and ${REAL.network}\\. Use another DATABASE_URL, or set X402_NETWORK=${TEST_NETWORK} and X402_ASSET=`,
);

/** A database that has been used with the test network, by a wallet with this much. */
async function testNetworkDatabase(t: Test) {
  const { url } = await testDatabase(t);
  const db = openDatabase(url, { maxConnections: 2 });
  t.teardown(() => db.destroy());
  await claimInstance(db, {
    denomination: { network: TEST_NETWORK, asset: TEST_ASSET.toLowerCase() },
    livemode: undefined,
  });
  return { url, db };
}

const SETTINGS = {
  SPEECH_BASE_URL: 'http://127.0.0.1:1/v1',
  X402_PAY_TO: PAYEE,
  X402_FACILITATOR_URL: 'http://127.0.0.1:1',
  X402_RPC_URL: 'http://127.0.0.1:1',
};

test('the service and commands exit 78 on a database of another network and name the fix', async (t) => {
  const { url } = await testNetworkDatabase(t);
  const env = { ...SETTINGS, DATABASE_URL: url };
  const child = startChild(t, 'src/main.ts', { ...env, WEB_CONCURRENCY: '2' });
  t.equal(await child.ended(), 78, child.output());
  t.equal(child.output().split(REFUSAL).length, 2, 'it is told once');
  t.notMatch(child.output(), /listen/i);
  const { code, output } = await operatorCommand(env, 'reconcile');
  t.equal(code, 78, output);
  t.match(output, REFUSAL);
});

test("a worker starts on a database of its network only, the asset's letter case aside", async (t) => {
  const { url } = await testNetworkDatabase(t);
  const startWith = async (env: Record<string, string>) =>
    (await startGateway(t, env, { databaseUrl: url })).app.start('worker');
  const refused = await startWith({});
  assert.ok(refused.outcome === 'refused');
  t.match(refused.reason, REFUSAL);
  const asset = TEST_ASSET.toUpperCase().replace('0X', '0x');
  t.equal((await startWith({ ...ON_TEST_NETWORK, X402_ASSET: asset })).outcome, 'started');
});

test('balances of a test network buy nothing on the real network', async (t) => {
  const { url } = await testDatabase(t);
  const before = await startPrepaidGateway(t, ON_TEST_NETWORK, { databaseUrl: url });
  const owner = privateKeyToAccount(generatePrivateKey());
  await claimInstance(before.db, {
    denomination: { network: TEST_NETWORK, asset: TEST_ASSET.toLowerCase() },
    livemode: undefined,
  });
  await unguarded(before.db, async (db) => {
    await fundedWallet({ ...before, db }, 1_000_000n, owner);
    await sql`update x402_payment set network = ${TEST_NETWORK}, asset = ${TEST_ASSET.toLowerCase()}`.execute(db);
  });

  const proxy = await startTcpProxy(t, url);
  proxy.cut();
  // It can't tell at its start whose database this is.
  const gateway = await startGateway(t, {}, { databaseUrl: proxy.url });
  t.equal((await gateway.app.start('worker')).outcome, 'started');
  proxy.restore();
  const domain = { ...domainOf(PAYEE, 'speechgate-Prepaid'), chainId: 8453 };
  const spend = await gateway.call('/x402/tts', await withCredential(owner, domain, '/x402/tts', HELLO));
  t.strictSame(
    [spend.status, spend.json.error.code, spend.json.error.details.reason],
    [503, 'CONFIG_ERROR', 'database_of_another_network'],
  );
  const path = `/x402/accounts/${owner.address}`;
  for (const [to, call] of [
    [path, await withCredential(owner, domain, path, {})],
    ['/x402/tts', HELLO],
    [DEPOSIT_PATH, depositOf(100_000)],
  ] as const) {
    t.equal((await gateway.call(to, call)).json.error.details.reason, 'database_of_another_network', to);
  }
  t.strictSame(await audit(before.db), []);
  const { rows } = await sql<{
    balance: bigint;
  }>`select balance_micro_usd as balance from account where kind = 'wallet'`.execute(before.db);
  t.strictSame(rows, [{ balance: 1_000_000n }]);
});

test('a payment in doubt on another network is not looked up on this chain', async (t) => {
  const node = await startRpcNode(t, 'http://127.0.0.1:1', () => ({ result: null }));
  const gateway = await startPrepaidGateway(t, { X402_RPC_URL: node.url });
  await claimInstance(gateway.db, { denomination: REAL, livemode: undefined });
  await insertPaymentInDoubt(gateway.db, `0x${'c'.repeat(40)}`, 1n);
  await unguarded(gateway.db, (db) => sql`update x402_payment set network = ${TEST_NETWORK}`.execute(db));
  await gateway.app.reconcilers.turn();
  await sql`
    update x402_payment set state = 'failed', failed_at = now(), next_look_at = now() - interval '1 day'`.execute(
    gateway.db,
  );
  await gateway.app.reconcilers.turn();
  t.strictSame(node.calls, []);
});

test('of replicas of two networks, one network claims the database, the others are refused', async (t) => {
  const { url } = await testDatabase(t);
  const gateways = await Promise.all(
    [{}, ON_TEST_NETWORK, {}].map((network) => startGateway(t, network, { databaseUrl: url })),
  );
  const starts = await Promise.all(gateways.map(({ app }) => app.start('worker')));
  const { network } = await (gateways[0] as Gateway).db
    .selectFrom('instance')
    .select('network')
    .executeTakeFirstOrThrow();
  const outcomes = starts.map(({ outcome }) => outcome);
  const isTest = network === TEST_NETWORK;
  t.strictSame(outcomes, isTest ? ['refused', 'started', 'refused'] : ['started', 'refused', 'started']);
});

test('a database accepts payments of its own network only, and never changes network', async (t) => {
  const { url } = await testDatabase(t);
  const db = openDatabase(url, { maxConnections: 1 });
  t.teardown(() => db.destroy());
  const { denomination } = await claimInstance(db, { denomination: undefined, livemode: undefined });
  t.equal(denomination, undefined, 'a database without payments belongs to nobody');
  await insertPaymentInDoubt(db, `0x${'c'.repeat(40)}`, 1n);
  const wanted = { network: TEST_NETWORK, asset: TEST_ASSET.toLowerCase() };
  t.strictSame((await claimInstance(db, { denomination: wanted, livemode: undefined })).denomination, REAL);
  await t.rejects(sql`update x402_payment set network = ${TEST_NETWORK}`.execute(db), /does not belong/);
  await t.rejects(sql`update instance set network = ${TEST_NETWORK}`.execute(db), /for ever/);
  t.strictSame(await audit(db), []);
  t.strictSame((await migrate(url)).applied, []);
});
