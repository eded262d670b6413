import assert from 'node:assert/strict';
import { test } from 'tap';
import { audit } from '../../src/ledger/audit.ts';
import { testDatabase } from '../support/database.ts';
import { send } from '../support/gateway.ts';
import { startVictim, sweepVictim } from '../support/kill.ts';
import { killCases } from '../support/kills.ts';
import { follow, SECRET } from '../support/lost-answer.ts';
import { balanceHeaders, fundedWallet, HELLO, startPrepaidGateway, TTS } from '../support/prepaid.ts';
import { openAiError } from '../support/stub-upstream.ts';
import { until } from '../support/until.ts';

const FUNDS = 100_000n;
const LEFT = FUNDS - 198n;

interface Case {
  /** Whether the payer has the whole answer. Only then may it be charged. */
  readonly isDelivered?: true;
  /** What the identical request is told before and after the lease has ended. */
  readonly before: 'pending' | 'charged';
  readonly after: 'restored' | 'charged';
}

const UNPAID = { before: 'pending', after: 'restored' } as const;
const CASES = killCases<'test/faults/prepaid-kill.test.ts', Case>('test/faults/prepaid-kill.test.ts', {
  'speech held': UNPAID,
  'speech failed': UNPAID,
  'speech spoken': UNPAID,
  'answer delivered': { ...UNPAID, isDelivered: true },
  'hold captured': { before: 'charged', after: 'charged', isDelivered: true },
  // The capture is on its way at that moment: the books say whether it came to be.
  'prepaid audio kept': { ...UNPAID, isDelivered: true },
});

test("after kill -9 at any step, a repeated prepaid request gets the ledger's state", { jobs: 2 }, async (t) => {
  await Promise.all(
    CASES.map(([point, { isDelivered, before, after }]) =>
      t.test(point, async (t) => {
        const { url: databaseUrl } = await testDatabase(t);
        // The other process of the deployment, whose reconcilers run when they are told to.
        const gateway = await startPrepaidGateway(t, { JOB_SIGNING_SECRET: SECRET }, { databaseUrl });
        const { dataDir } = gateway.config;
        if (point === 'speech failed') gateway.upstream.mode = openAiError(500);
        const { sign, balance } = await fundedWallet(gateway, FUNDS);
        const victim = await startVictim(t, point, {
          DATABASE_URL: databaseUrl,
          DATA_DIR: dataDir,
          SPEECH_BASE_URL: gateway.upstream.url,
          X402_PAY_TO: gateway.domain.verifyingContract,
          X402_FACILITATOR_URL: 'http://127.0.0.1:1',
          LOG_LEVEL: 'warn',
        });
        const call = await sign(TTS, HELLO);
        const answer = send(victim.url, TTS, call);
        if (isDelivered) t.equal((await answer).status, 200);
        else await t.rejects(answer);
        await until(() => victim.child.process.signalCode === 'SIGKILL');
        t.strictSame(await audit(gateway.db), []);

        const repeated = async () => {
          const reply = await gateway.call(TTS, call);
          assert.deepEqual([reply.status, reply.json.error.code], [409, 'PREPAID_NONCE_REPLAYED']);
          const { state, audio } = reply.json.error.details;
          if (audio) assert.equal((await follow(gateway.url, audio)).status, 200, 'what is offered can be had');
          return [state, ...balanceHeaders(reply)];
        };
        const told = { pending: LEFT, charged: LEFT, restored: FUNDS };
        const isInDoubt = point === 'prepaid audio kept';
        const charged = { pending: null, charged: '198', restored: '0' };
        if (!isInDoubt) t.strictSame(await repeated(), [before, charged[before], String(told[before])]);
        await sweepVictim(gateway);
        const isCharged = isInDoubt ? (await balance()) === LEFT : after === 'charged';
        const end = isCharged ? 'charged' : 'restored';
        t.strictSame(await repeated(), [end, charged[end], String(told[end])]);
        t.equal(await balance(), told[end]);
        t.strictSame(await audit(gateway.db), []);
        t.equal(gateway.upstream.requests.length, point === 'speech held' ? 0 : 1, 'nothing is spoken again');
      }),
    ),
  );
});
