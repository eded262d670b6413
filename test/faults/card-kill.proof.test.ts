import assert from 'node:assert/strict';
import { test } from 'tap';
import { audit } from '../../src/ledger/audit.ts';
import { testDatabase } from '../support/database.ts';
import { send, startGateway } from '../support/gateway.ts';
import { startGatewayProcess } from '../support/gateway-process.ts';
import { SHORT_LEASES, startVictim, untilVictimIsSwept } from '../support/kill.ts';
import { startStubUpstream } from '../support/stub-upstream.ts';

/** Each point of a synchronous request, and whether the caller has paid once everything has settled. */
const POINTS: [string, boolean][] = [
  ['speech held', false],
  ['speech spoken', false],
  ['speech captured', false],
];

test('kill -9 at each step of a synchronous request: the balance is right two intervals after the lease', {
  jobs: 3,
}, async (t) => {
  await Promise.all(
    POINTS.map(([point, isPaid]) =>
      t.test(point, async (t) => {
        const { url: databaseUrl } = await testDatabase(t);
        const upstream = await startStubUpstream();
        t.teardown(() => upstream.close());
        const env = {
          ...SHORT_LEASES,
          DATABASE_URL: databaseUrl,
          SPEECH_BASE_URL: upstream.url,
          STRIPE_SECRET_KEY: 'sk_test_gateway',
          STRIPE_API_BASE: 'http://127.0.0.1:1',
          LOG_LEVEL: 'warn',
        };
        const { db, fund, balance } = await startGateway(t, {}, { databaseUrl });
        const account = await fund(500);
        const victim = await startVictim(t, point, env);
        const call = { headers: { 'x-credit-account': account } };
        await assert.rejects(send(victim.url, '/tts?text=Hello+world', call));
        assert.equal(await balance(account), 4_999_802n);

        const restarted = await startGatewayProcess(t, env);
        await untilVictimIsSwept(db);
        assert.equal(await balance(account), isPaid ? 4_999_802n : 5_000_000n);
        assert.deepEqual(await audit(db), []);
        assert.equal(await restarted.child.stop(), 0);
      }),
    ),
  );
});
