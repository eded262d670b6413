import assert from 'node:assert/strict';
import { buffer } from 'node:stream/consumers';
import { test } from 'tap';
import { audit } from '../../src/ledger/audit.ts';
import { testDatabase } from '../support/database.ts';
import { askForFlowingAudio } from '../support/flowing-audio.ts';
import { send, startGateway } from '../support/gateway.ts';
import { startGatewayProcess } from '../support/gateway-process.ts';
import { SHORT_LEASES, startVictim, untilVictimIsSwept } from '../support/kill.ts';
import { Drip, startStubUpstream } from '../support/stub-upstream.ts';

/** Each point of a synchronous request, and how its audio comes. Wherever it dies, the caller has not paid in the end. */
const POINTS = [
  ['speech held', 'whole'],
  ['speech spoken', 'whole'],
  ['speech captured', 'whole'],
  ['speech spoken', 'flowing'],
  ['speech captured', 'flowing'],
] as const;

test('kill -9 at each step of a synchronous request: the balance is right two intervals after the lease', {
  jobs: 3,
}, async (t) => {
  await Promise.all(
    POINTS.map(([point, audio]) =>
      t.test(`${point}, ${audio} audio`, async (t) => {
        const { url: databaseUrl } = await testDatabase(t);
        const drip = new Drip();
        const upstream = await startStubUpstream(audio === 'flowing' ? { mode: drip.mode } : {});
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
        if (audio === 'flowing') {
          const answer = buffer(await askForFlowingAudio(victim.url, account, drip));
          drip.end();
          await assert.rejects(answer);
        } else {
          const call = { headers: { 'x-credit-account': account } };
          await assert.rejects(send(victim.url, '/tts?text=Hello+world', call));
        }
        assert.equal(await balance(account), 4_999_802n);

        const restarted = await startGatewayProcess(t, env);
        await untilVictimIsSwept(db);
        assert.equal(await balance(account), 5_000_000n);
        assert.deepEqual(await audit(db), []);
        assert.equal(await restarted.child.stop(), 0);
      }),
    ),
  );
});
