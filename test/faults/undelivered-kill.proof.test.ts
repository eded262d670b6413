import assert from 'node:assert/strict';
import { connect } from 'node:net';
import { sql } from 'kysely';
import { test } from 'tap';
import { audit } from '../../src/ledger/audit.ts';
import { testDatabase } from '../support/database.ts';
import { send, startGateway } from '../support/gateway.ts';
import { startGatewayProcess } from '../support/gateway-process.ts';
import { SHORT_LEASES, startVictim, sweepVictim } from '../support/kill.ts';
import { killCases } from '../support/kills.ts';
import { depositor, HELLO, startPrepaidGateway, TTS } from '../support/prepaid.ts';
import { reversalsIn } from '../support/reversals.ts';
import { Drip, mp3, silentMp3, startStubUpstream } from '../support/stub-upstream.ts';
import { until } from '../support/until.ts';

const PRICE = 198n;
const FUNDS = 100_000n;

interface Case {
  readonly flow: 'card' | 'prepaid';
  /** While it is spoken; otherwise it is delivered, and the process told to stop. */
  readonly isTakenForDead: boolean;
  readonly charged: bigint;
  readonly reason?: 'process_died' | 'not_delivered';
}

/** What each payer has paid when the process dies, and in the end; and why it was given back, if it was. */
const CASES = killCases<'test/faults/undelivered-kill.proof.test.ts', Case>(
  'test/faults/undelivered-kill.proof.test.ts',
  {
    'capture in doubt': { flow: 'card', isTakenForDead: true, charged: PRICE, reason: 'process_died' },
    'given back': { flow: 'prepaid', isTakenForDead: true, charged: 0n, reason: 'not_delivered' },
    'process signed off': { flow: 'card', isTakenForDead: false, charged: PRICE },
  },
);

test('kill -9 at each step of giving back what was charged and not delivered: it is given back once, and nothing else', {
  jobs: 2,
}, async (t) => {
  await Promise.all(
    CASES.map(([point, { flow, isTakenForDead, charged, reason }]) =>
      t.test(`${point}, ${flow}`, async (t) => {
        const { url: databaseUrl } = await testDatabase(t);
        const gateway = await startPrepaidGateway(t, {}, { databaseUrl });
        const { db, upstream } = gateway;
        const { sign, balance: prepaid } = await depositor(gateway, FUNDS);
        const account = await gateway.fund(500);
        const paid = async () =>
          flow === 'card' ? 5_000_000n - (await gateway.balance(account)) : FUNDS - (await prepaid());
        const victim = await startVictim(t, point, {
          ...{ ...SHORT_LEASES, SPEECH_TIMEOUT_MS: '30000', LOG_LEVEL: 'warn' },
          ...{ DATABASE_URL: databaseUrl, SPEECH_BASE_URL: upstream.url },
          ...{ STRIPE_SECRET_KEY: 'sk_test_gateway', STRIPE_API_BASE: 'http://127.0.0.1:1' },
          ...{ X402_PAY_TO: gateway.domain.verifyingContract, X402_FACILITATOR_URL: 'http://127.0.0.1:1' },
        });
        const drip = new Drip();
        upstream.mode = drip.mode;
        const answer =
          flow === 'card'
            ? send(victim.url, '/tts?text=Hello+world', { headers: { 'x-credit-account': account } })
            : send(victim.url, TTS, await sign(TTS, HELLO));
        const ended = answer.then(({ status }) => status).catch(() => undefined);
        await drip.opened;
        if (isTakenForDead) {
          await sql`update gateway_process set is_dead = true`.execute(db);
          await victim.child.printed(/counts as dead/);
          // As if others had said so only a moment after its capture, which is not refused then.
          await sql`update gateway_process set is_dead = false`.execute(db);
        }
        await drip.write(silentMp3(500));
        drip.end();
        const status = await ended;
        if (isTakenForDead) assert.notEqual(status, 200);
        else {
          assert.equal(status, 200);
          victim.child.process.kill('SIGTERM');
        }
        await until(() => victim.child.process.signalCode === 'SIGKILL');
        assert.equal(await paid(), charged);

        await sweepVictim(gateway);
        assert.equal(await paid(), reason ? 0n : PRICE);
        const kind = flow === 'card' ? 'charge' : 'spend';
        assert.deepEqual(await reversalsIn(db), reason ? [{ kind, amount: PRICE, reason }] : []);
        assert.deepEqual(await audit(db), []);
      }),
    ),
  );
});

test('kill -9 of one of two gateways: the other gives back what it did not deliver, and only that', async (t) => {
  const { url: databaseUrl } = await testDatabase(t);
  const upstream = await startStubUpstream();
  t.teardown(() => upstream.close());
  const { db, fund, balance } = await startGateway(t, {}, { databaseUrl });
  const account = await fund(500);
  const env = {
    ...SHORT_LEASES,
    SPEECH_TIMEOUT_MS: '20000',
    DATABASE_URL: databaseUrl,
    SPEECH_BASE_URL: upstream.url,
    STRIPE_SECRET_KEY: 'sk_test_gateway',
    STRIPE_API_BASE: 'http://127.0.0.1:1',
    LOG_LEVEL: 'warn',
  };
  const [victim, other] = await Promise.all([startGatewayProcess(t, env), startGatewayProcess(t, env)]);
  const call = { headers: { 'x-credit-account': account } };
  for (const { url } of [victim, other]) assert.equal((await send(url, '/tts?text=Hello+world', call)).status, 200);
  const process = () => db.selectFrom('gateway_process').selectAll().orderBy('id').executeTakeFirst();
  const lastOfVictim = await db
    .selectFrom('transfer')
    .select('id')
    .where('process_id', '=', (await process())?.id ?? 0)
    .executeTakeFirstOrThrow();
  await until(async () => ((await process())?.finished_below ?? 0n) > lastOfVictim.id);

  // A caller who reads nothing: his answer is captured, and can't be delivered.
  upstream.mode = mp3(1_000_000);
  const { hostname, port } = new URL(victim.url);
  const caller = connect(Number(port), hostname).on('error', () => {});
  t.teardown(() => caller.destroy());
  caller.pause().write(`GET /tts?text=Hello+world HTTP/1.1\r\nhost: x\r\nx-credit-account: ${account}\r\n\r\n`);
  const posted = () => db.selectFrom('transfer').select('id').where('state', '=', 'posted').execute();
  await until(async () => (await posted()).length === 1 + 3);
  await victim.kill();
  assert.equal(await balance(account), 5_000_000n - 3n * 198n);

  // Silent for 20 s, and still 10 s later.
  const giveUpAt = performance.now() + 60_000;
  while ((await reversalsIn(db)).length === 0 && performance.now() < giveUpAt)
    await new Promise((r) => setTimeout(r, 200));
  assert.deepEqual(await reversalsIn(db), [{ kind: 'charge', amount: 198n, reason: 'process_died' }]);
  assert.equal(await balance(account), 5_000_000n - 2n * 198n);
  await until(async () => (await db.selectFrom('gateway_process').select('id').execute()).length === 1);
  assert.deepEqual(await audit(db), []);
  assert.equal(await other.child.stop(), 0);
  assert.deepEqual(await db.selectFrom('gateway_process').select('id').execute(), []);
});
