import assert from 'node:assert/strict';
import { once } from 'node:events';
import { test } from 'tap';
import { audit } from '../../src/ledger/audit.ts';
import { testDatabase } from '../support/database.ts';
import { send } from '../support/gateway.ts';
import { startGatewayProcess } from '../support/gateway-process.ts';
import { SHORT_LEASES, startVictim, untilVictimIsSwept } from '../support/kill.ts';
import { sendUnread } from '../support/lost-answer.ts';
import { depositor, HELLO, moneyOf, startPrepaidGateway, TTS } from '../support/prepaid.ts';
import { body, type Mode, mp3, openAiError, silentMp3 } from '../support/stub-upstream.ts';
import { until } from '../support/until.ts';

const FUNDS = 100_000n;
const LEFT = FUNDS - 198n;

/** Each point of a prepaid request, what the provider does before it, and what is left once everything has settled. */
const LONG = body(silentMp3(600_000));
const POINTS: [point: string, mode: Mode, left: bigint][] = [
  ['speech held', mp3(), FUNDS],
  ['speech spoken', mp3(), FUNDS],
  ['speech captured', mp3(), FUNDS],
  ['speech failed', openAiError(500), FUNDS],
  // The caller leaves within the body; as long as its audio is not kept, another process gives it back.
  ['answer lost', LONG, FUNDS],
  ['lost answer noted', LONG, FUNDS],
  ['lost answer in the store', LONG, FUNDS],
];

test('kill -9 at each step of a prepaid request: the balance is right two intervals after the lease', {
  jobs: POINTS.length,
}, async (t) => {
  await Promise.all(
    POINTS.map(([point, mode, left]) =>
      t.test(point, async (t) => {
        const { url: databaseUrl } = await testDatabase(t);
        // Deposits and signs; the processes of the deployment are the victim and the one that is started after it.
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

        const restarted = await startGatewayProcess(t, env);
        const repeated = async () => {
          const reply = await send(restarted.url, TTS, call);
          assert.deepEqual([reply.status, reply.json.error.code], [409, 'PREPAID_NONCE_REPLAYED']);
          const { state, audio } = reply.json.error.details;
          return [state, audio, ...moneyOf(reply)];
        };
        assert.deepEqual(await repeated(), ['pending', undefined, '0', String(LEFT)]);
        await untilVictimIsSwept(gateway.db);
        assert.equal(await balance(), left);
        assert.deepEqual(await repeated(), ['restored', undefined, '0', String(left)]);
        assert.deepEqual(
          await repeated(),
          ['restored', undefined, '0', null],
          'what can not change is told again without the database',
        );
        assert.deepEqual(await audit(gateway.db), []);
        assert.equal(gateway.upstream.requests.length, point === 'speech held' ? 0 : 1);
        assert.equal(await restarted.child.stop(), 0);
      }),
    ),
  );
});
