import assert from 'node:assert/strict';
import test from 'node:test';
import { audit } from '../../src/ledger/audit.ts';
import { freePort } from '../../src/sandbox/free-port.ts';
import { startChild } from '../support/child.ts';
import { testDatabase } from '../support/database.ts';
import { send, startGateway } from '../support/gateway.ts';
import { startStubUpstream } from '../support/stub-upstream.ts';

/** The shortest synthesis makes the shortest lease: 0.1 s, and what capture and reserve add to it. */
const SPEECH_TIMEOUT_MS = '100';
const RECONCILE_INTERVAL_MS = '1000';
const LEASE_AND_TWO_INTERVALS_MS = 50_100 + 2 * 1000;

/** Each point of a synchronous request, and whether the caller has paid once everything has settled. */
const POINTS: [string, boolean][] = [
  ['speech held', false],
  ['speech spoken', false],
  ['speech captured', true],
];

test('kill -9 at each step of a synchronous request: the balance is right two intervals after the lease', {
  concurrency: 3,
}, async (t) => {
  await Promise.all(
    POINTS.map(([point, isPaid]) =>
      t.test(point, async (t) => {
        const { url: databaseUrl } = await testDatabase(t);
        const upstream = await startStubUpstream();
        t.after(() => upstream.close());
        const port = await freePort(undefined);
        const env = {
          NODE_ENV: 'test',
          PORT: String(port),
          DATABASE_URL: databaseUrl,
          SPEECH_BASE_URL: upstream.url,
          SPEECH_TIMEOUT_MS,
          RECONCILE_INTERVAL_MS,
          STRIPE_SECRET_KEY: 'sk_test_gateway',
          STRIPE_API_BASE: 'http://127.0.0.1:1',
          LOG_LEVEL: 'warn',
        };
        const { db, fund, balance } = await startGateway(t, {}, { databaseUrl });
        const account = await fund(500);
        const victim = startChild(t, 'src/main.ts', { ...env, SPEECHGATE_TEST_KILL_AT: point });
        await victim.printed(/listens on/);
        const call = { headers: { 'x-credit-account': account } };
        await assert.rejects(send(`http://127.0.0.1:${port}`, '/tts?text=Hello+world', call));
        assert.equal(await balance(account), 4_999_802n);

        const restarted = startChild(t, 'src/main.ts', env);
        await restarted.printed(/listens on/);
        const giveUpAt = performance.now() + LEASE_AND_TWO_INTERVALS_MS;
        const isEnded = async () =>
          (await db.selectFrom('transfer').select('id').where('state', '=', 'pending').execute()).length === 0;
        while (!(await isEnded()) && performance.now() < giveUpAt) await new Promise((next) => setTimeout(next, 200));
        assert.equal(await balance(account), isPaid ? 4_999_802n : 5_000_000n);
        assert.deepEqual(await audit(db), []);
        assert.equal(await restarted.stop(), 0);
      }),
    ),
  );
});
