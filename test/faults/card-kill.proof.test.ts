import assert from 'node:assert/strict';
import { buffer } from 'node:stream/consumers';
import { test } from 'tap';
import { audit } from '../../src/ledger/audit.ts';
import { testDatabase } from '../support/database.ts';
import { askForFlowingAudio } from '../support/flowing-audio.ts';
import { send, startGateway } from '../support/gateway.ts';
import { SHORT_LEASES, startVictim, sweepVictim } from '../support/kill.ts';
import { killCases } from '../support/kills.ts';
import { Drip, openAiError, startStubUpstream } from '../support/stub-upstream.ts';
import { until } from '../support/until.ts';

/** How the audio of a synchronous request comes before it dies. Wherever it does, the caller has not paid in the end. */
const CASES = killCases('test/faults/card-kill.proof.test.ts', {
  'process registered': 'none',
  'stream held': 'whole',
  'stream failed': 'refused',
  'whole speech spoken': 'whole',
  'whole speech captured': 'whole',
  'stream broken off': 'broken off',
  'stream spoken': 'flowing',
  'stream captured': 'flowing',
  // Its answer may have arrived: in doubt he has not paid.
  'delivery untold': 'delivered',
});

test('kill -9 at each step of a synchronous request: nothing is charged once the lease is over', {
  jobs: 2,
}, async (t) => {
  await Promise.all(
    CASES.map(([point, audio]) =>
      t.test(`${point}, ${audio} audio`, async (t) => {
        const { url: databaseUrl } = await testDatabase(t);
        const drip = new Drip();
        const isDripping = audio === 'flowing' || audio === 'broken off';
        const upstream = await startStubUpstream(isDripping ? { mode: drip.mode } : {});
        if (audio === 'refused') upstream.mode = openAiError(500);
        t.teardown(() => upstream.close());
        const env = {
          ...SHORT_LEASES,
          DATABASE_URL: databaseUrl,
          SPEECH_BASE_URL: upstream.url,
          STRIPE_SECRET_KEY: 'sk_test_gateway',
          STRIPE_API_BASE: 'http://127.0.0.1:1',
          LOG_LEVEL: 'warn',
        };
        // The other process of the deployment, whose reconcilers run when they are told to.
        const gateway = await startGateway(t, {}, { databaseUrl });
        const { db, fund, balance } = gateway;
        const account = await fund(500);
        const victim = await startVictim(t, point, env);
        if (isDripping) {
          const answer = buffer(await askForFlowingAudio(victim.url, account, drip));
          if (audio === 'flowing') drip.end();
          else drip.reset();
          await assert.rejects(answer);
        } else {
          const call = { headers: { 'x-credit-account': account } };
          const answer = send(victim.url, '/tts?text=Hello+world', call);
          if (audio === 'delivered') await answer.catch(() => undefined);
          else await assert.rejects(answer);
        }
        await until(() => victim.child.process.signalCode === 'SIGKILL');
        assert.equal(await balance(account), audio === 'none' ? 5_000_000n : 4_999_802n);

        await sweepVictim(gateway);
        assert.equal(await balance(account), 5_000_000n);
        assert.deepEqual(await audit(db), []);
      }),
    ),
  );
});
