import { rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'tap';
import { audit } from '../../src/ledger/audit.ts';
import { testChain, wallet } from '../support/chain.ts';
import { land } from '../support/deposit.ts';
import { invalid, refused } from '../support/facilitator-faults.ts';
import { type Reply, send } from '../support/gateway.ts';
import { killed, letLeasesEnd, startVictim } from '../support/kill.ts';
import { killCases } from '../support/kills.ts';
import { mp3, openAiError } from '../support/stub-upstream.ts';
import { until } from '../support/until.ts';
import {
  challengeOf,
  HELLO,
  PRICE,
  sign,
  startX402Gateway,
  timesPaid,
  withPayment,
  type X402Gateway,
} from '../support/x402.ts';

const { chain, skip } = await testChain();

/** How often the payer has paid by then, and how a repetition ends. */
interface Case {
  readonly paidBefore: number;
  readonly status: 200 | 402;
  /** What fails before it dies. */
  readonly fault?: (gateway: X402Gateway) => void;
  /** The transfer lands once it is dead. */
  readonly landsLater?: true;
}

const CASES = killCases<'test/faults/x402-kill.test.ts', Case>('test/faults/x402-kill.test.ts', {
  'x402 reserved': { paidBefore: 0, status: 200 },
  'x402 not admitted': {
    paidBefore: 0,
    status: 200,
    fault: ({ facilitator }) => facilitator.faults.verify(invalid('insufficient_funds')),
  },
  'speech held': { paidBefore: 0, status: 200 },
  'speech failed': {
    paidBefore: 0,
    status: 200,
    fault: ({ upstream }) => {
      upstream.mode = openAiError(500);
    },
  },
  'speech spoken': { paidBefore: 0, status: 200 },
  'x402 audio not stored': { paidBefore: 0, status: 200 },
  'audio appended': { paidBefore: 0, status: 200 },
  'x402 audio stored': { paidBefore: 0, status: 200 },
  'x402 settle answered': { paidBefore: 1, status: 200 },
  'x402 proved': { paidBefore: 1, status: 200 },
  'x402 settled': { paidBefore: 1, status: 200 },
  'x402 unknown': {
    paidBefore: 0,
    status: 200,
    fault: ({ facilitator }) => facilitator.faults.settle({ broadcast: false, answer: 'error' }),
    landsLater: true,
  },
  'x402 refused': {
    paidBefore: 0,
    status: 402,
    fault: ({ facilitator }) => facilitator.faults.settle(refused('insufficient_funds')),
  },
  // The last one, since its end takes the chain's clock past the authorization.
  'x402 settling': { paidBefore: 0, status: 402 },
});

for (const [point, { paidBefore, status, fault, landsLater }] of CASES) {
  test(`R21: kill -9 at "${point}": one payment if there is audio, else none`, { skip }, async (t) => {
    // The second process of the deployment; the first one is the program itself, and dies.
    const gateway = await startX402Gateway(t, chain);
    const { baseUrl, dataDir, jobs } = gateway.config;
    const isNotStored = point === 'x402 audio not stored';
    const folder = join(dataDir, 'replaced');
    const victim = await startVictim(t, point, {
      BASE_URL: baseUrl,
      DATABASE_URL: gateway.databaseUrl,
      DATA_DIR: dataDir,
      LOG_LEVEL: 'warn',
      SPEECH_BASE_URL: gateway.upstream.url,
      X402_PAY_TO: gateway.payTo,
      X402_FACILITATOR_URL: gateway.facilitator.url,
      X402_RPC_URL: chain.rpcUrl,
      AUDIO_STORE: isNotStored ? `file:${folder}` : jobs.audioStore,
    });
    if (isNotStored) {
      await rm(folder, { recursive: true });
      await writeFile(folder, '');
    }
    const payer = await wallet(chain.client, 10n * PRICE);
    const payload = await sign(payer, await challengeOf(gateway, '/x402/tts', HELLO));
    const paid = withPayment(HELLO, payload);
    fault?.(gateway);
    await t.rejects(send(victim.url, '/x402/tts', paid));
    await killed(victim.child);
    await letLeasesEnd(gateway.db);
    t.equal(await timesPaid(chain, payer), paidBefore);
    gateway.upstream.mode = mp3();
    if (landsLater) await land(chain, payload);

    const codes = new Set<string>();
    const repeatUntil = (isEnd: (reply: Reply) => boolean) =>
      until(async () => {
        const reply = await gateway.call('/x402/tts', paid);
        if (isEnd(reply)) return true;
        codes.add(reply.json.error.code);
        return false;
      });
    if (point === 'x402 settling') {
      await repeatUntil(({ json }) => json.error.code === 'PAYMENT_OUTCOME_UNKNOWN');
      await chain.client.increaseTime({ seconds: 600 });
      await chain.client.mine({ blocks: 3 });
    }
    await repeatUntil((reply) => reply.status === status);
    t.ok(
      [...codes].every((code) => ['PAYMENT_REPLAY_PENDING', 'PAYMENT_OUTCOME_UNKNOWN'].includes(code)),
      [...codes].join(),
    );
    const isPaid = status === 200;
    t.equal(await timesPaid(chain, payer), isPaid ? 1 : 0);
    t.equal(await gateway.revenue(), isPaid ? PRICE : 0n);
    if (isPaid) t.equal((await gateway.call('/x402/tts', paid)).headers.get('x-idempotent-replay'), 'true');
    t.strictSame(await audit(gateway.db), []);
  });
}
