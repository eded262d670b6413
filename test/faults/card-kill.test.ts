import { buffer } from 'node:stream/consumers';
import { test } from 'tap';
import { audit } from '../../src/ledger/audit.ts';
import { testDatabase } from '../support/database.ts';
import { askForFlowingAudio } from '../support/flowing-audio.ts';
import { send, startGateway } from '../support/gateway.ts';
import { startVictim, sweepVictim } from '../support/kill.ts';
import { killCases } from '../support/kills.ts';
import { ControlledStream, openAiError, startStubUpstream } from '../support/stub-upstream.ts';
import { until } from '../support/until.ts';

interface Case {
  readonly killed: string;
  readonly audio: 'whole' | 'flowing' | 'broken off' | 'refused';
  /** Whether the caller has the whole answer. Only then may it be charged. */
  readonly isDelivered?: true;
  readonly isCharged?: true;
}

const CASES = killCases<'test/faults/card-kill.test.ts', Case>('test/faults/card-kill.test.ts', {
  'speech held': { killed: 'before the synthesis', audio: 'whole' },
  'speech failed': { killed: 'before the void', audio: 'refused' },
  'whole speech spoken': { killed: 'before the first byte', audio: 'whole' },
  'stream spoken': { killed: 'between bytes', audio: 'flowing' },
  'stream broken off': { killed: 'as the upstream breaks off', audio: 'broken off' },
  'answer delivered': { killed: 'between the last byte and the capture', audio: 'flowing', isDelivered: true },
  'hold captured': { killed: 'after the capture', audio: 'whole', isDelivered: true, isCharged: true },
});
const FUNDED = 5_000_000n;
const PAID = FUNDED - 198n;

test('kill -9 at any step of a card request charges only for delivered audio', { jobs: 2 }, async (t) => {
  await Promise.all(
    CASES.map(([point, { killed, audio, isDelivered, isCharged }]) =>
      t.test(`killed ${killed}, at "${point}"`, async (t) => {
        const { url: databaseUrl } = await testDatabase(t);
        const drip = new ControlledStream();
        const isDripping = audio === 'flowing' || audio === 'broken off';
        const upstream = await startStubUpstream(isDripping ? { mode: drip.mode } : {});
        if (audio === 'refused') upstream.mode = openAiError(500);
        t.teardown(() => upstream.close());
        // The other process of the deployment, whose reconcilers run when they are told to.
        const gateway = await startGateway(t, {}, { databaseUrl });
        const { db, fund, balance } = gateway;
        const account = await fund(500);
        const victim = await startVictim(t, point, {
          DATABASE_URL: databaseUrl,
          SPEECH_BASE_URL: upstream.url,
          STRIPE_SECRET_KEY: 'sk_test_gateway',
          STRIPE_API_BASE: 'http://127.0.0.1:1',
          LOG_LEVEL: 'warn',
        });
        let answer: Promise<unknown>;
        if (isDripping) {
          answer = buffer(await askForFlowingAudio(victim.url, account, drip));
          if (audio === 'flowing') drip.end();
          else drip.reset();
        } else answer = send(victim.url, '/tts?text=Hello+world', { headers: { 'x-credit-account': account } });
        if (isDelivered) await answer;
        else await t.rejects(answer);
        await until(() => victim.child.process.signalCode === 'SIGKILL');
        t.equal(await balance(account), PAID, 'held, or charged');
        t.strictSame(await audit(db), []);

        await sweepVictim(gateway);
        t.equal(await balance(account), isCharged ? PAID : FUNDED);
        t.strictSame(await audit(db), []);
      }),
    ),
  );
});
