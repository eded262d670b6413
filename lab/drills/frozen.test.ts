import { readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { test } from 'tap';
import { audit } from '../../src/ledger/audit.ts';
import { testDatabase } from '../../test/support/database.ts';
import { askForFlowingAudio } from '../../test/support/flowing-audio.ts';
import { send, startGateway } from '../../test/support/gateway.ts';
import { startGatewayProcess } from '../../test/support/gateway-process.ts';
import { HOLD_LEASE_SECONDS } from '../../test/support/holds.ts';
import { sweepVictim } from '../../test/support/kill.ts';
import type { Kill } from '../../test/support/kills.ts';
import { runTurn } from '../../test/support/reconcile.ts';
import { ControlledStream, mp3, startStubUpstream } from '../../test/support/stub-upstream.ts';
import { until } from '../../test/support/until.ts';

const FUNDED = 5_000_000n;

interface Case {
  /** The step at which the process stands still; without one, once audio flows. */
  readonly at?: Kill;
  readonly audio: 'whole' | 'flowing';
  /** The caller disconnects meanwhile. */
  readonly leaves?: true;
  /** Another process's reconciler has its turn meanwhile. */
  readonly isVoided: boolean;
}

const CASES: Readonly<Record<string, Case>> = {
  'before the first byte': { at: 'whole speech spoken', audio: 'whole', isVoided: true },
  'before the first byte, without a void': { at: 'whole speech spoken', audio: 'whole', isVoided: false },
  'between bytes': { at: 'stream spoken', audio: 'flowing', isVoided: true },
  'between bytes, caller disconnects, without a void': {
    audio: 'flowing',
    leaves: true,
    isVoided: false,
  },
  'between the last byte and the capture': { at: 'answer delivered', audio: 'whole', isVoided: true },
};

test('a process frozen past its lease never charges for undelivered audio', {
  jobs: Object.keys(CASES).length,
}, async (t) => {
  await Promise.all(
    Object.entries(CASES).map(([name, { at, audio, leaves, isVoided }]) =>
      t.test(`frozen ${name}`, async (t) => {
        const { url: databaseUrl } = await testDatabase(t);
        const drip = new ControlledStream();
        const upstream = await startStubUpstream({ mode: audio === 'flowing' ? drip.mode : mp3() });
        t.teardown(() => upstream.close());
        const gateway = await startGateway(t, {}, { databaseUrl });
        const account = await gateway.fund(500);
        const { url, child } = await startGatewayProcess(t, {
          DATABASE_URL: databaseUrl,
          SPEECH_BASE_URL: upstream.url,
          STRIPE_SECRET_KEY: 'sk_test_gateway',
          STRIPE_API_BASE: 'http://127.0.0.1:1',
          LOG_LEVEL: 'warn',
          NODE_ENV: 'test',
          SPEECHGATE_TEST_KILL_SIGNAL: 'SIGSTOP',
          ...(at && { SPEECHGATE_TEST_KILL_AT: at }),
        });
        let isOver: Promise<boolean>;
        if (audio === 'whole') {
          const reply = send(url, '/tts?text=Hello+world', { headers: { 'x-credit-account': account } });
          isOver = reply.then(
            ({ status }) => status === 200,
            () => false,
          );
        } else {
          const incoming = await askForFlowingAudio(url, account, drip);
          isOver = new Promise((resolve) => incoming.resume().once('close', () => resolve(incoming.complete)));
          incoming.on('error', () => {});
          if (!at) child.process.kill('SIGSTOP');
          if (leaves) incoming.destroy();
          drip.end();
        }
        const isStopped = () => / T /.test(readFileSync(`/proc/${child.process.pid}/stat`, 'utf8').replace(/.*\)/, ''));
        await until(isStopped);
        await sleep((HOLD_LEASE_SECONDS + 1) * 1000);
        if (isVoided) t.strictSame((await runTurn(gateway, 'expired_holds')).count, 1);
        child.process.kill('SIGCONT');
        const isDelivered = await isOver;
        // What it ends by itself, it has ended when it stops.
        t.equal(await child.stop(), 0, child.output());
        await sweepVictim(gateway);
        const isCharged = (await gateway.balance(account)) !== FUNDED;
        t.ok(!isCharged || (isDelivered && !isVoided), `charged: ${isCharged}, delivered: ${isDelivered}`);
        if (at === 'answer delivered') t.ok(isDelivered);
        t.strictSame(await audit(gateway.db), []);
      }),
    ),
  );
});
