import assert from 'node:assert/strict';
import { once } from 'node:events';
import { test } from 'tap';
import { audit } from '../../src/ledger/audit.ts';
import { testDatabase } from '../support/database.ts';
import { send } from '../support/gateway.ts';
import { SHORT_LEASES, startVictim, sweepVictim } from '../support/kill.ts';
import { killCases } from '../support/kills.ts';
import { sendUnread } from '../support/lost-answer.ts';
import { depositor, HELLO, moneyOf, startPrepaidGateway, TTS } from '../support/prepaid.ts';
import { body, type Mode, mp3, openAiError, silentMp3 } from '../support/stub-upstream.ts';
import { until } from '../support/until.ts';

const FUNDS = 100_000n;
const LEFT = FUNDS - 198n;

const LONG = body(silentMp3(600_000));
/** What the provider does before each step of a prepaid request. Wherever it dies, the payer has not paid in the end. */
const CASES = killCases<'test/faults/prepaid-kill.proof.test.ts', Mode>('test/faults/prepaid-kill.proof.test.ts', {
  'speech held': mp3(),
  'speech spoken': mp3(),
  'hold captured': mp3(),
  'speech captured': mp3(),
  'speech failed': openAiError(500),
  // The caller leaves within the body; as long as its audio is not kept, another process gives it back.
  'answer lost': LONG,
  'lost answer noted': LONG,
  'lost answer in the store': LONG,
  'lost answer not kept': LONG,
  // From here on the audio can be had, so that it stays charged.
  'lost answer offered': LONG,
});

test('kill -9 at each step of a prepaid request: nothing is charged once the lease is over, unless its audio is offered', {
  jobs: 2,
}, async (t) => {
  await Promise.all(
    CASES.map(([point, mode]) =>
      t.test(point, async (t) => {
        const { url: databaseUrl } = await testDatabase(t);
        // The other process of the deployment, whose reconcilers run when they are told to.
        const gateway = await startPrepaidGateway(t, {}, { databaseUrl });
        gateway.upstream.mode = mode;
        const { sign, balance } = await depositor(gateway, FUNDS);
        const env = {
          ...SHORT_LEASES,
          ...(mode === LONG && { SPEECH_TIMEOUT_MS: '30000' }),
          DATABASE_URL: databaseUrl,
          SPEECH_BASE_URL: gateway.upstream.url,
          X402_PAY_TO: gateway.domain.verifyingContract,
          X402_FACILITATOR_URL: 'http://127.0.0.1:1',
          ...(point === 'lost answer not kept' && { AUDIO_STORE: 'file:/dev/null/audio' }),
          LOG_LEVEL: 'warn',
        };
        const victim = await startVictim(t, point, env);
        const call = await sign(TTS, HELLO);
        if (mode === LONG) {
          const socket = await sendUnread(victim.url, TTS, call);
          await once(socket, 'readable');
          socket.resetAndDestroy();
        } else await assert.rejects(send(victim.url, TTS, call));
        await until(() => victim.child.process.signalCode === 'SIGKILL');
        assert.equal(await balance(), LEFT);
        assert.deepEqual(await audit(gateway.db), []);

        const repeated = async () => {
          const reply = await gateway.call(TTS, call);
          assert.deepEqual([reply.status, reply.json.error.code], [409, 'PREPAID_NONCE_REPLAYED']);
          const { state, audio } = reply.json.error.details;
          return [state, audio, ...moneyOf(reply)];
        };
        if (point === 'lost answer offered') {
          await sweepVictim(gateway);
          const [state, audio] = await repeated();
          assert.equal(state, 'charged');
          assert.match(String(audio), /\/x402\/tts\/audio\//);
          assert.equal(await balance(), LEFT);
          assert.deepEqual(await audit(gateway.db), []);
          return;
        }
        assert.deepEqual(await repeated(), ['pending', undefined, '0', String(LEFT)]);
        await sweepVictim(gateway);
        assert.equal(await balance(), FUNDS);
        let told: unknown[] = [];
        // What may change is told from memory for a second.
        await until(async () => {
          told = await repeated();
          return told[0] === 'restored';
        });
        assert.deepEqual(told, ['restored', undefined, '0', String(FUNDS)]);
        assert.deepEqual(
          await repeated(),
          ['restored', undefined, '0', null],
          'what can not change is told again without the database',
        );
        assert.deepEqual(await audit(gateway.db), []);
        assert.equal(gateway.upstream.requests.length, point === 'speech held' ? 0 : 1);
      }),
    ),
  );
});
