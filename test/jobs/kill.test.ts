import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type Test, t, test } from 'tap';
import { openDatabase } from '../../src/db/database.ts';
import { audioKey, deleteAudio } from '../../src/jobs/job.ts';
import { audit } from '../../src/ledger/audit.ts';
import { creditTopUp } from '../../src/payments/top-up/credit-top-up.ts';
import { freePort } from '../../src/sandbox/free-port.ts';
import { openAudioStore } from '../../src/speech/store/open-store.ts';
import { type Child, startChild } from '../support/child.ts';
import { testDatabase } from '../support/database.ts';
import { send } from '../support/gateway.ts';
import { later, untilJob } from '../support/jobs.ts';
import { letLeasesEnd } from '../support/kill.ts';
import { killCases } from '../support/kills.ts';
import {
  ControlledStream,
  hangBeforeHeaders,
  type Mode,
  mp3,
  openAiError,
  silentMp3,
  startStubUpstream,
} from '../support/stub-upstream.ts';
import { until } from '../support/until.ts';

const FUNDS = 5_000_000n;
const PRICE = 198n;
const KEY = 'the same request';

t.jobs = 2;

/** Real processes on one database, one store and one provider. */
async function start(t: Test) {
  const databaseUrl = (await testDatabase(t)).url;
  const dataDir = await mkdtemp(join(tmpdir(), 'speechgate-proof-'));
  const audioStore = `file:${join(dataDir, 'audio')}`;
  const upstream = await startStubUpstream();
  const db = openDatabase(databaseUrl, { maxConnections: 2 });
  t.teardown(async () => {
    await upstream.close();
    await db.destroy();
    await rm(dataDir, { recursive: true, force: true });
  });
  const { accountId } = await creditTopUp(db, {
    topUpId: randomUUID(),
    sessionId: `cs_test_${randomUUID()}`,
    accountId: randomUUID(),
    livemode: false,
    amountCents: 500,
    challengeId: null,
  });
  const run = async (env: Record<string, string> = {}, args: string[] = []) => {
    const port = await freePort();
    const child = startChild(
      t,
      'src/main.ts',
      {
        NODE_ENV: 'test',
        PORT: String(port),
        DATABASE_URL: databaseUrl,
        DATA_DIR: dataDir,
        AUDIO_STORE: audioStore,
        SPEECH_BASE_URL: upstream.url,
        STRIPE_SECRET_KEY: 'sk_test_proof',
        STRIPE_API_BASE: 'http://127.0.0.1:1',
        RECONCILE_INTERVAL_MS: '1000',
        // A job is asked for all the time until its lease has ended.
        EDGE_RATE_LIMIT_MAX: '100000',
        LOG_LEVEL: 'warn',
        ...env,
      },
      args,
    );
    await child.printed(/listens on|runs jobs/);
    const url = `http://127.0.0.1:${port}`;
    return { child, url, call: (path: string, call?: Parameters<typeof send>[2]) => send(url, path, call) };
  };
  const balance = async () => {
    const row = await db
      .selectFrom('account')
      .select('balance_micro_usd')
      .where('id', '=', accountId)
      .executeTakeFirst();
    return row?.balance_micro_usd;
  };
  const job = () => db.selectFrom('job').selectAll().executeTakeFirst();
  return { databaseUrl, audioStore, upstream, db, account: accountId, run, balance, job };
}

const killed = (child: Child) => until(() => child.process.signalCode === 'SIGKILL');

/** Where the process dies, what the provider does, and what must have become of the job after a restart. */
interface Case {
  readonly mode?: Mode;
  readonly end: 'none' | 'completed' | 'failed';
  readonly spoken: number;
}

const CASES = killCases<'test/jobs/kill.test.ts', Case>('test/jobs/kill.test.ts', {
  'job accepting': { end: 'none', spoken: 0 },
  'job accepted': { end: 'completed', spoken: 1 },
  'job claimed': { end: 'completed', spoken: 1 },
  'job spoken': { end: 'completed', spoken: 2 },
  'audio written': { end: 'completed', spoken: 2 },
  'audio renamed': { end: 'completed', spoken: 2 },
  'job stored': { end: 'completed', spoken: 2 },
  'job completed': { end: 'completed', spoken: 1 },
  'job retry': { mode: openAiError(500), end: 'completed', spoken: 2 },
  'job failed': { mode: openAiError(400), end: 'failed', spoken: 1 },
  // It is given back when its process is told to stop.
  'job given back': { mode: hangBeforeHeaders(), end: 'completed', spoken: 2 },
  // Its worker is frozen while it is spoken, and wakes up when another one has completed it.
  'job taken over': { end: 'completed', spoken: 2 },
});

test('kill -9 at each step of a job: after a restart job and balance are correct', { jobs: 2 }, async (t) => {
  const proofs = CASES.map(([at, { mode = mp3(200), end, spoken }]) =>
    t.test(at, async (t) => {
      const { upstream, audioStore, db, account, run, balance, job } = await start(t);
      const slow = new ControlledStream();
      const isTakenOver = at === 'job taken over';
      upstream.mode = isTakenOver ? slow.mode : mode;
      const first = await run({ SPEECHGATE_TEST_KILL_AT: at });
      await later(first, account, { key: KEY }).catch(() => undefined);
      if (at === 'job given back') {
        await upstream.waitForRequests(1);
        first.child.process.kill('SIGTERM');
      }
      if (isTakenOver) {
        await slow.opened;
        first.child.process.kill('SIGSTOP');
      } else await killed(first.child);
      await letLeasesEnd(db);
      upstream.mode = mp3(200);

      const second = await run();
      if (isTakenOver) {
        await untilJob(second, (await job())?.id as string, 'completed', 'failed');
        first.child.process.kill('SIGCONT');
        await slow.write(silentMp3(900));
        slow.end();
        await killed(first.child);
      }
      if (end === 'none') {
        assert.equal(await job(), undefined);
        assert.equal(await balance(), FUNDS);
      } else {
        const jobId = (await job())?.id as string;
        const ended = (await untilJob(second, jobId, 'completed', 'failed')).json;
        assert.equal(ended.status, end);
        assert.equal(await balance(), end === 'completed' ? FUNDS - PRICE : FUNDS);
        assert.equal((await job())?.text, null);
        if (end === 'completed') {
          const audio = await second.call(new URL(ended.links.audio).pathname);
          assert.deepEqual(audio.bytes, silentMp3(200));
        }
        // Who never got an answer asks again, and finds the same job.
        const again = await later(second, account, { key: KEY });
        assert.deepEqual([again.status, again.json.jobId], [202, jobId]);
        assert.equal(await balance(), end === 'completed' ? FUNDS - PRICE : FUNDS);
      }
      assert.equal(upstream.requests.length, spoken);
      if (isTakenOver) {
        const { id, fence } = (await job()) ?? assert.fail();
        const store = openAudioStore(audioStore);
        const isStored = async (owner: number) => {
          const audio = await store.open(audioKey(id, owner));
          audio?.stream.destroy();
          return audio !== undefined;
        };
        const stored = () => Promise.all([fence - 1, fence].map(isStored));
        assert.deepEqual(await stored(), [true, true], 'what the former owner has stored is left');
        assert.ok(await deleteAudio(db, store, { id, fence }));
        assert.deepEqual(await stored(), [false, false], 'and goes when the time of the job is over');
        await store.close();
      }
      assert.deepEqual(await audit(db), []);
      assert.equal(await second.child.stop(), 0);
    }),
  );
  await Promise.all(proofs);
});

test('a paused worker can neither complete nor capture a job taken over', async (t) => {
  const { upstream, db, account, run, balance, job } = await start(t);
  const slow = new ControlledStream();
  upstream.mode = slow.mode;
  const web = await run({}, ['--role=web']);
  const paused = await run({}, ['--role=worker']);
  const { jobId } = (await later(web, account)).json;
  await slow.opened;
  paused.child.process.kill('SIGSTOP');
  await letLeasesEnd(db);
  upstream.mode = mp3(200);
  const other = await run({}, ['--role=worker']);
  const taken = (await untilJob(web, jobId, 'completed', 'failed')).json;
  assert.equal(taken.status, 'completed');
  const before = await job();

  paused.child.process.kill('SIGCONT');
  await slow.write(silentMp3(900));
  slow.end();
  await paused.child.printed(/took over the job/);
  assert.deepEqual(await job(), before);
  assert.equal(await balance(), FUNDS - PRICE);
  const audio = await web.call(new URL(taken.links.audio).pathname);
  assert.deepEqual(audio.bytes, silentMp3(200));
  assert.deepEqual(await audit(db), []);
  for (const { child } of [paused, other, web]) assert.equal(await child.stop(), 0);
});

test('SIGTERM requeues a long job with its hold, and the process exits with 0', async (t) => {
  const { upstream, db, account, run, balance, job } = await start(t);
  upstream.mode = hangBeforeHeaders();
  const first = await run();
  const { jobId } = (await later(first, account)).json;
  await upstream.waitForRequests(1);
  assert.equal(await first.child.stop('SIGTERM'), 0);
  const given = await job();
  assert.deepEqual([given?.state, given?.attempts, given?.lease_until], ['queued', 0, null]);
  assert.equal(await balance(), FUNDS - PRICE);
  assert.deepEqual(await audit(db), []);
  upstream.mode = mp3(200);
  const second = await run();
  assert.equal((await untilJob(second, jobId, 'completed', 'failed')).json.status, 'completed');
  assert.deepEqual(await audit(db), []);
  assert.equal(await second.child.stop(), 0);
});

test('--role=web only serves requests, and --role=worker only runs jobs', async (t) => {
  const { upstream, account, run } = await start(t);
  const web = await run({}, ['--role=web']);
  const { jobId } = (await later(web, account)).json;
  const adminPort = await freePort();
  const worker = await run({ ADMIN_PORT: String(adminPort) }, ['--role=worker']);
  assert.equal((await untilJob(web, jobId, 'completed', 'failed')).json.status, 'completed');
  assert.equal(upstream.requests.length, 1);
  await assert.rejects(fetch(worker.url), 'no public listener');
  assert.equal((await fetch(`http://127.0.0.1:${adminPort}/livez`)).status, 200);
  assert.equal((await fetch(`http://127.0.0.1:${adminPort}/readyz`)).status, 200);
  for (const { child } of [worker, web]) assert.equal(await child.stop(), 0);
});

test('R47: an unknown role or a worker without a provider exits with 78', async (t) => {
  const { databaseUrl } = await start(t);
  const rows: [args: string[], says: RegExp][] = [
    [['--role=both'], /--role=web or --role=worker/],
    [['--role=web', 'more'], /--role=web or --role=worker/],
    [['--role=worker'], /SPEECH_BASE_URL is not set/],
  ];
  for (const [args, says] of rows) {
    const child = startChild(t, 'src/main.ts', { DATABASE_URL: databaseUrl }, args);
    await until(() => child.process.exitCode !== null);
    assert.equal(child.process.exitCode, 78);
    assert.match(child.output(), says);
  }
});
