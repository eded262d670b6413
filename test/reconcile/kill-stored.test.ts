/** A process that dies within a reconciler's work on payments, jobs and stored audio: the next one finishes it, once. */
import assert from 'node:assert/strict';
import { sql } from 'kysely';
import { type Test, test } from 'tap';
import { v7 as uuidv7 } from 'uuid';
import { audit } from '../../src/ledger/audit.ts';
import { openAudioStore } from '../../src/speech/store/open-store.ts';
import { claimed, endLease, start as startJobs } from '../jobs/claiming.ts';
import { testChain, wallet } from '../support/chain.ts';
import { startChild } from '../support/child.ts';
import { payUnknown } from '../support/deposit.ts';
import type { Gateway } from '../support/gateway.ts';
import { later, untilJob } from '../support/jobs.ts';
import { killCommand, killReconciler, letLeasesEnd } from '../support/kill.ts';
import { killCases } from '../support/kills.ts';
import { unguarded } from '../support/unguarded.ts';
import { PRICE, payFor, startX402Gateway, timesPaid, type X402Gateway } from '../support/x402.ts';

const { chain, skip } = await testChain();

/** What is left to be done, what makes it due again, and what must be so once it is done. */
interface Scene {
  readonly gateway: Gateway;
  readonly env: Record<string, string>;
  /** Makes `speechgate reconcile` do it; without them, one reconciler does. */
  readonly args?: string[];
  readonly due?: () => Promise<unknown>;
  done(): Promise<void>;
}

const PROGRAM = 'src/speechgate.ts';
const COMMAND = 'the whole command';

const envOf = (gateway: X402Gateway) => ({
  DATABASE_URL: gateway.databaseUrl,
  AUDIO_STORE: gateway.config.jobs.audioStore,
  X402_PAY_TO: gateway.payTo,
  X402_FACILITATOR_URL: gateway.facilitator.url,
  X402_RPC_URL: chain.rpcUrl,
});

const payment = ({ db }: Gateway) => db.selectFrom('x402_payment').selectAll().executeTakeFirst();

/** A payment that has landed, while its process never learned of it. @param state as it is recorded */
const landed = (state: 'unknown' | 'failed' | 'reserved') => async (t: Test) => {
  const since = new Date(Date.now() - 3_600_000);
  const gateway = await startX402Gateway(t, chain, {}, { inclusionTimeoutMs: 0 });
  const payer = await wallet(chain.client, 10n * PRICE);
  const { paid } = await payUnknown(gateway, chain, () => payFor(gateway, payer));
  await chain.client.mine({ blocks: 2 });
  const due = () =>
    state === 'failed'
      ? sql`update x402_payment set next_look_at = now() - interval '1 second' where state = 'failed'`.execute(
          gateway.db,
        )
      : Promise.resolve();
  await unguarded(gateway.db, async (db) => {
    if (state === 'failed') await sql`update x402_payment set state = 'failed', failed_at = now()`.execute(db);
    if (state === 'reserved')
      await sql`update x402_payment set state = 'reserved', settling_at = null,
                lease_until = now() - interval '1 hour'`.execute(db);
  });
  await due();
  return {
    gateway,
    env: envOf(gateway),
    ...(state === 'reserved' && { args: ['--since', since.toISOString()] }),
    due,
    done: async () => {
      assert.equal((await payment(gateway))?.state, 'settled');
      assert.equal(await timesPaid(chain, payer), 1);
      assert.equal((await gateway.call('/x402/tts', paid)).headers.get('x-idempotent-replay'), 'true');
      assert.equal(gateway.facilitator.calls.filter(({ endpoint }) => endpoint === 'settle').length, 1);
    },
  };
};

/** A payment that a restored database has lost, and that the operator has booked by what the chain shows of it. */
async function unrecorded(t: Test): Promise<Scene> {
  const { gateway, env } = await landed('unknown')(t);
  await unguarded(gateway.db, (db) => sql`delete from x402_payment`.execute(db));
  const args = ['--since', new Date(Date.now() - 3_600_000).toISOString(), '--book'];
  return {
    ...{ gateway, env, args },
    done: async () => {
      const again = startChild(t, PROGRAM, env, ['reconcile', ...args]);
      assert.equal(await again.ended(), 0, again.output());
      const payments = await gateway.db.selectFrom('x402_payment').select(['state', 'purpose']).execute();
      assert.deepEqual(payments, [{ state: 'settled', purpose: 'speech' }]);
      assert.equal(await gateway.revenue(), PRICE);
    },
  };
}

/** A reservation of a dead process. */
async function abandoned(t: Test): Promise<Scene> {
  const gateway = await startX402Gateway(t, chain);
  const { reply } = await payFor(gateway, await wallet(chain.client, PRICE));
  assert.equal(reply.status, 200);
  await unguarded(gateway.db, async (db) => {
    await sql`delete from transfer`.execute(db);
    return sql`update x402_payment set state = 'reserved', settling_at = null, settled_at = null,
               transaction_hash = null, log_index = null, receipt = null,
               lease_until = now() - interval '1 hour'`.execute(db);
  });
  return { gateway, env: envOf(gateway), done: async () => assert.equal(await payment(gateway), undefined) };
}

/** Audio of two minutes that no payment needs any more. */
async function unneededAudio(t: Test): Promise<Scene> {
  const gateway = await startX402Gateway(t, chain);
  const store = openAudioStore(gateway.config.jobs.audioStore);
  t.teardown(() => store.close());
  const keys = [25, 26].map((hours) => `${uuidv7({ msecs: Date.now() - hours * 3_600_000 })}-1`);
  for (const key of keys) await store.dated.x402.put(key, Buffer.from('audio'), 'audio/mpeg');
  return {
    gateway,
    env: envOf(gateway),
    done: async () => {
      for (const key of keys) assert.equal(await store.dated.x402.open(key), undefined);
    },
  };
}

/** A job whose worker died. */
async function deadWorker(t: Test): Promise<Scene> {
  const { gateway, account, upstream } = await startJobs(t);
  const { jobId } = (await later(gateway, account)).json;
  await claimed(gateway, jobId);
  await endLease(gateway, jobId);
  return {
    gateway,
    env: { DATABASE_URL: gateway.databaseUrl, AUDIO_STORE: gateway.config.jobs.audioStore },
    done: async () => {
      gateway.app.worker?.start();
      assert.equal((await untilJob(gateway, jobId, 'completed', 'failed')).json.status, 'completed');
      assert.equal(upstream.requests.length, 1);
      assert.equal(await gateway.balance(account), 5_000_000n - PRICE);
    },
  };
}

/** A job's audio whose retention is over. */
async function expired(t: Test): Promise<Scene> {
  const { gateway, account } = await startJobs(t);
  gateway.app.worker?.start();
  const { jobId } = (await later(gateway, account)).json;
  assert.equal((await untilJob(gateway, jobId, 'completed', 'failed')).json.status, 'completed');
  await gateway.db.updateTable('job').set({ audio_expires_at: sql<Date>`now()` }).execute();
  return {
    gateway,
    env: { DATABASE_URL: gateway.databaseUrl, AUDIO_STORE: gateway.config.jobs.audioStore },
    done: async () => {
      const { audio_deleted } = await gateway.db.selectFrom('job').select('audio_deleted').executeTakeFirstOrThrow();
      assert.equal(audio_deleted, true);
      assert.equal((await gateway.call(`/tts/jobs/${jobId}`)).json.result.stored, false);
    },
  };
}

/** What is left to be done, and the reconciler that dies while it does it, or the whole command. */
type Case = readonly [scene: (t: Test) => Promise<Scene>, reconciler: string];

const CASES = killCases<'test/reconcile/kill-stored.test.ts', Case>('test/reconcile/kill-stored.test.ts', {
  'reservation taken over': [abandoned, 'abandoned_payments'],
  'stored minute deleted': [unneededAudio, 'payment_audio'],
  'doubtful payment claimed': [landed('unknown'), 'doubtful_payments'],
  'doubtful payment found': [landed('unknown'), 'doubtful_payments'],
  'failed payment claimed': [landed('failed'), 'failed_payments'],
  'failed payment found': [landed('failed'), 'failed_payments'],
  'received payment settling': [landed('reserved'), COMMAND],
  'unrecorded transfer decided': [unrecorded, COMMAND],
  'jobs queued again': [deadWorker, 'lost_jobs'],
  'jobs taken over': [deadWorker, 'lost_jobs'],
  'lost jobs entered': [deadWorker, 'lost_jobs'],
  'job audio deleted': [expired, 'expired_audio'],
});

for (const [point, [scene, reconciler]] of CASES) {
  test(`kill -9 at "${point}": the next reconciler finishes it once`, { skip }, async (t) => {
    const { gateway, env, args = [], due, done } = await scene(t);
    if (reconciler === COMMAND) await killCommand(t, point, { program: PROGRAM, env, args: ['reconcile', ...args] });
    else await killReconciler(t, point, reconciler, env);
    await letLeasesEnd(gateway.db);
    await due?.();
    await gateway.app.reconcilers.turn();
    await done();
    t.strictSame(await audit(gateway.db), []);
  });
}
