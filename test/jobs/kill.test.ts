import assert from 'node:assert/strict';
import { type Test, test } from 'tap';
import { readRole } from '../../src/config/role.ts';
import { audioKey, deleteAudio } from '../../src/jobs/job.ts';
import { audit } from '../../src/ledger/audit.ts';
import { freePort } from '../../src/sandbox/free-port.ts';
import { openAudioStore } from '../../src/speech/store/open-store.ts';
import { startChild } from '../support/child.ts';
import { send } from '../support/gateway.ts';
import { startGatewayProcess } from '../support/gateway-process.ts';
import { later, untilJob } from '../support/jobs.ts';
import { killCommand, killed, letLeasesEnd, startVictim, startVictimProgram } from '../support/kill.ts';
import { type Kill, killCases } from '../support/kills.ts';
import { runTurn } from '../support/reconcile.ts';
import {
  ControlledStream,
  hangBeforeHeaders,
  type Mode,
  mp3,
  openAiError,
  silentMp3,
} from '../support/stub-upstream.ts';
import { endLease, FUNDS, PRICE, row, start as startGateways } from './claiming.ts';

const KEY = 'the same request';
/** Only what runs jobs, and the program itself. */
const WORKER = { program: 'test/support/worker-process.ts' };
const REAL_WORKER = { program: 'src/main.ts', args: ['--role=worker'] };

/** A gateway whose worker stands still until it is started, and the settings of other processes of its deployment. */
async function start(t: Test) {
  const { upstream, gateway, account } = await startGateways(t);
  upstream.mode = mp3(200);
  const env = {
    DATABASE_URL: gateway.databaseUrl,
    DATA_DIR: gateway.config.dataDir,
    AUDIO_STORE: gateway.config.jobs.audioStore,
    SPEECH_BASE_URL: upstream.url,
    STRIPE_SECRET_KEY: 'sk_test_gateway',
    STRIPE_API_BASE: 'http://127.0.0.1:1',
    LOG_LEVEL: 'warn',
  };
  const balance = () => gateway.balance(account);
  const job = () => gateway.db.selectFrom('job').selectAll().executeTakeFirst();
  const accept = async () => (await later(gateway, account, { key: KEY })).json.jobId as string;
  return { upstream, gateway, account, env, balance, job, accept };
}

type Scene = Awaited<ReturnType<typeof start>>;

/** Another process runs what a dead one has left, once its leases have ended. */
async function takeOver({ gateway }: Scene): Promise<void> {
  await letLeasesEnd(gateway.db);
  assert.equal((await runTurn(gateway, 'lost_jobs')).outcome, 'done');
  gateway.app.worker?.start();
}

/** Job and balance are as they should be in the end, and stay so when the caller repeats the request. */
async function assertEnded(scene: Scene, end: 'completed' | 'failed', spoken: number): Promise<void> {
  const { upstream, gateway, account, balance, job } = scene;
  const jobId = (await job())?.id as string;
  const ended = (await untilJob(gateway, jobId, 'completed', 'failed')).json;
  assert.equal(ended.status, end);
  const left = end === 'completed' ? FUNDS - PRICE : FUNDS;
  assert.equal(await balance(), left);
  assert.equal((await job())?.text, null);
  if (end === 'completed') {
    const audio = await gateway.call(new URL(ended.links.audio).pathname);
    assert.deepEqual(audio.bytes, silentMp3(200));
  }
  // A caller who never got an answer repeats the request, and finds the same job.
  const again = await later(gateway, account, { key: KEY });
  assert.deepEqual([again.status, again.json.jobId], [202, jobId]);
  assert.equal(await balance(), left);
  assert.equal(upstream.requests.length, spoken);
  assert.deepEqual(await audit(gateway.db), []);
}

/** Its process dies while it accepts the job. */
async function killAccepting(t: Test, point: Kill): Promise<Scene> {
  const scene = await start(t);
  const victim = await startVictim(t, point, scene.env, ['--role=web']);
  const call = { method: 'POST', json: { text: 'Hello world' } };
  const headers = { 'x-credit-account': scene.account, 'idempotency-key': KEY };
  await assert.rejects(send(victim.url, '/tts?async=true', { ...call, headers }));
  await killed(victim.child);
  await takeOver(scene);
  return scene;
}

interface Case {
  readonly end?: 'completed' | 'failed';
  readonly spoken: number;
  /** Of the provider, before the worker dies. */
  readonly mode?: Mode;
  readonly worker?: typeof REAL_WORKER;
}

/** Its worker dies while it runs the job. */
const whileRunning =
  (point: Kill, { end = 'completed', spoken, mode, worker }: Case) =>
  async (t: Test) => {
    const scene = await start(t);
    const { upstream, env, accept } = scene;
    await accept();
    if (mode) upstream.mode = mode;
    await killCommand(t, point, { ...(worker ?? WORKER), env });
    upstream.mode = mp3(200);
    await takeOver(scene);
    await assertEnded(scene, end, spoken);
  };

const CASES = killCases<'test/jobs/kill.test.ts', (t: Test) => Promise<void>>('test/jobs/kill.test.ts', {
  'job accepting': async (t) => {
    const { upstream, gateway, balance, job } = await killAccepting(t, 'job accepting');
    assert.equal(await job(), undefined);
    assert.equal(await balance(), FUNDS);
    assert.equal(upstream.requests.length, 0);
    assert.deepEqual(await audit(gateway.db), []);
  },
  'job accepted': async (t) => assertEnded(await killAccepting(t, 'job accepted'), 'completed', 1),
  'job claimed': whileRunning('job claimed', { spoken: 1, worker: REAL_WORKER }),
  'job spoken': whileRunning('job spoken', { spoken: 2 }),
  'audio written': whileRunning('audio written', { spoken: 2 }),
  'audio renamed': whileRunning('audio renamed', { spoken: 2 }),
  'job stored': whileRunning('job stored', { spoken: 2 }),
  'job completed': whileRunning('job completed', { spoken: 1 }),
  'job retry': whileRunning('job retry', { spoken: 2, mode: openAiError(500) }),
  'job failed': whileRunning('job failed', { spoken: 1, mode: openAiError(400), end: 'failed' }),
  'job given back': async (t) => {
    const scene = await start(t);
    const { upstream, env, accept } = scene;
    upstream.mode = hangBeforeHeaders();
    await accept();
    const victim = startVictimProgram(t, 'job given back', { ...WORKER, env });
    await upstream.waitForRequests(1);
    victim.process.kill('SIGTERM');
    await killed(victim);
    upstream.mode = mp3(200);
    await takeOver(scene);
    await assertEnded(scene, 'completed', 2);
  },
  // Its worker is frozen while it is spoken, and wakes up when another one has completed it.
  'job taken over': async (t) => {
    const scene = await start(t);
    const { upstream, gateway, env, accept } = scene;
    const id = await accept();
    const slow = new ControlledStream();
    upstream.mode = slow.mode;
    const frozen = startVictimProgram(t, 'job taken over', { ...WORKER, env });
    await slow.opened;
    frozen.process.kill('SIGSTOP');
    await endLease(gateway, id);
    upstream.mode = mp3(200);
    assert.equal((await runTurn(gateway, 'lost_jobs')).count, 1);
    gateway.app.worker?.start();
    assert.equal((await untilJob(gateway, id, 'completed', 'failed')).json.status, 'completed');
    frozen.process.kill('SIGCONT');
    await slow.write(silentMp3(900));
    slow.end();
    await killed(frozen);
    await assertEnded(scene, 'completed', 2);
    const { fence } = await row(gateway, id);
    const store = openAudioStore(env.AUDIO_STORE);
    const isStored = async (owner: number) => {
      const audio = await store.open(audioKey(id, owner));
      audio?.stream.destroy();
      return audio !== undefined;
    };
    const stored = () => Promise.all([fence - 1, fence].map(isStored));
    assert.deepEqual(await stored(), [true, true], 'what the former owner has stored is left');
    assert.ok(await deleteAudio(gateway.db, store, { id, fence }));
    assert.deepEqual(await stored(), [false, false], 'and goes when the time of the job is over');
    await store.close();
  },
});

for (const [point, prove] of CASES) {
  test(`kill -9 of a job at "${point}": another process ends it, charged once`, prove);
}

test('SIGTERM requeues a long job with its hold, and the process exits with 0', async (t) => {
  const { upstream, gateway, env, balance, accept } = await start(t);
  upstream.mode = hangBeforeHeaders();
  const id = await accept();
  const worker = startChild(t, WORKER.program, env);
  await upstream.waitForRequests(1);
  t.equal(await worker.stop(), 0);
  const { state, attempts, lease_until } = await row(gateway, id);
  t.strictSame([state, attempts, lease_until], ['queued', 0, null]);
  t.equal(await balance(), FUNDS - PRICE);
  t.strictSame(await audit(gateway.db), []);
  upstream.mode = mp3(200);
  gateway.app.worker?.start();
  t.equal((await untilJob(gateway, id, 'completed', 'failed')).json.status, 'completed');
  t.strictSame(await audit(gateway.db), []);
});

test('--role=web only serves requests; --role=worker only runs jobs, and ends one first', async (t) => {
  const { upstream, gateway, account, env } = await start(t);
  const slow = new ControlledStream();
  upstream.mode = slow.mode;
  const web = await startGatewayProcess(t, env, ['--role=web']);
  const { jobId } = (await later({ call: (path, call) => send(web.url, path, call) }, account)).json;
  const [port, adminPort] = [await freePort(), await freePort()];
  const ports = { PORT: String(port), ADMIN_PORT: String(adminPort) };
  const worker = startChild(t, REAL_WORKER.program, { ...env, ...ports }, REAL_WORKER.args);
  await worker.printed(/runs jobs/);
  await slow.opened;
  t.equal(upstream.requests.length, 1);
  await assert.rejects(fetch(`http://127.0.0.1:${port}`), 'no public listener');
  t.equal((await fetch(`http://127.0.0.1:${adminPort}/livez`)).status, 200);
  t.equal((await fetch(`http://127.0.0.1:${adminPort}/readyz`)).status, 200);
  await slow.write(silentMp3(200));
  const stopped = worker.stop();
  slow.end();
  t.equal(await stopped, 0, worker.output());
  t.equal((await untilJob(gateway, jobId, 'completed', 'failed')).json.status, 'completed');
  t.equal(await web.child.stop(), 0);
});

test('R47: an unknown role or a worker without a provider exits with 78', async (t) => {
  t.equal(readRole(['--role=web', 'more']), undefined);
  const env = { DATABASE_URL: 'postgres://127.0.0.1:1/none' };
  for (const [arg, says] of [
    ['--role=both', /--role=web or --role=worker/],
    ['--role=worker', /Set SPEECH_BASE_URL\./],
  ] as const) {
    const child = startChild(t, 'src/main.ts', env, [arg]);
    t.equal(await child.ended(), 78);
    t.match(child.output(), says);
  }
});
