/**
 * Each incident of docs/runbook.md is caused on a small installation, seen by the alerts of a real Prometheus, and mended by
 * running the blocks of its section as they stand there.
 */
import assert from 'node:assert/strict';
import { execFileSync, spawnSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { chmod, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { sql } from 'kysely';
import pg from 'pg';
import { type Test, test } from 'tap';
import { migrate } from '../../src/db/migrate.ts';
import { audit, keepAuditResult } from '../../src/ledger/audit.ts';
import { buy, form, shownAccount } from '../../test/payments/top-up/shop.ts';
import { testChain } from '../../test/support/chain.ts';
import { type Child, programCommand, startCommand } from '../../test/support/child.ts';
import { mineSteadily } from '../../test/support/deposit.ts';
import { testFacilitator } from '../../test/support/facilitator.ts';
import { invalid } from '../../test/support/facilitator-faults.ts';
import { type Installation, prepareInstallation } from '../../test/support/installation.ts';
import { later } from '../../test/support/jobs.ts';
import { serve } from '../../test/support/listening.ts';
import { type Prometheus, startPrometheus, withoutPrometheus } from '../../test/support/prometheus.ts';
import { failing } from '../../test/support/rpc-node.ts';
import { runbook } from '../../test/support/runbook.ts';
import {
  cutChunked,
  hangBeforeHeaders,
  mp3,
  openAiError,
  startStubUpstream,
} from '../../test/support/stub-upstream.ts';
import { startTcpProxy, type TcpProxy } from '../../test/support/tcp-proxy.ts';
import { temporaryFolder } from '../../test/support/temporary-folder.ts';
import { until } from '../../test/support/until.ts';
import { payFor } from '../../test/support/x402.ts';

const DAY_MS = 86_400_000;
const TIMEOUT_MS = 60_000;
const DISK_BYTES = 8 * 1024 * 1024;

const { chain, skip: withoutChain } = await testChain();
/** The sections of docs/runbook.md. */
const sections = await runbook();

/** A small file system of its own; undefined where none can be mounted. */
async function smallDisk(t: Test): Promise<string | undefined> {
  const folder = await mkdtemp(join(tmpdir(), 'speechgate-disk-'));
  const mounted = spawnSync('mount', ['-t', 'tmpfs', '-o', `size=${DISK_BYTES}`, 'none', folder]).status === 0;
  t.teardown(async () => {
    if (mounted) execFileSync('umount', ['-l', folder]);
    await rm(folder, { recursive: true, force: true });
  });
  return mounted ? folder : undefined;
}

/** A role of the service that is not the owner of the tables, as docs/operate.md has it. */
async function applicationUrl(t: Test, { env, db }: Installation): Promise<{ url: string; role: string }> {
  const role = `speechgate_app_${randomBytes(6).toString('hex')}`;
  await sql`create role ${sql.ref(role)} login password 'secret'`.execute(db);
  t.teardown(async () => {
    await sql`drop owned by ${sql.ref(role)}`.execute(db);
    await sql`drop role ${sql.ref(role)}`.execute(db);
  });
  await migrate(env.DATABASE_URL as string, role);
  const url = new URL(env.DATABASE_URL as string);
  url.username = role;
  url.password = 'secret';
  return { url: url.href, role };
}

async function keyEndsSoon(file: string): Promise<void> {
  const { keys } = JSON.parse(await readFile(file, 'utf8'));
  keys[0].validUntil = new Date(Date.now() + 5 * DAY_MS).toISOString();
  await writeFile(file, JSON.stringify({ keys }));
}

/** Everything of the scene: an incident is caused with it, and what the operator edits is in `settings`. */
interface Scene extends Installation {
  readonly prometheus: Prometheus;
  readonly settings: Record<string, string>;
  /** The service's in the database. */
  readonly role: string;
  /** A small file system for its audio, where one can be mounted. */
  readonly disk: string | undefined;
  /** What leads the service to its database. */
  readonly database: TcpProxy;
  gateway: Child;
  restart(signal?: NodeJS.Signals): Promise<void>;
  isFiring(...names: string[]): Promise<void>;
  /** Runs the blocks of a section, and waits until its alert has ended while the service is up. */
  follow(t: Test, name: string, edited?: Record<string, string>): Promise<string>;
}

/** The installation of the runbook, its Prometheus, and what its operator has. */
async function prepareScene(t: Test): Promise<Scene> {
  const disk = await smallDisk(t);
  const installation = await prepareInstallation(t, chain, {
    RECONCILE_INTERVAL_MS: '500',
    ...(disk !== undefined && { AUDIO_STORE: `file:${disk}` }),
  });
  const { env, db } = installation;
  const owner = env.DATABASE_URL as string;
  const { url: directUrl, role } = await applicationUrl(t, installation);
  const database = await startTcpProxy(t, directUrl);
  await keyEndsSoon(env.SIGNING_KEYS_FILE as string);
  const settings: Record<string, string> = { DATABASE_URL: database.url };
  const start = () => installation.start(settings, programCommand('src/main.ts', '--role=web'));
  const scene: Scene = {
    ...installation,
    ...{ settings, role, disk, database },
    gateway: await start(),
    prometheus: await startPrometheus(t, new URL(installation.adminUrl).host),
    restart: async (signal = 'SIGTERM') => {
      await scene.gateway.stop(signal);
      scene.gateway = await start();
    },
    isFiring: async (...names) => {
      let missing = names;
      const allFire = async () => {
        const firing = await scene.prometheus.firing();
        missing = names.filter((name) => !firing.includes(name));
        return missing.length === 0;
      };
      await until(allFire, TIMEOUT_MS).catch(() => assert.fail(`${missing} don't fire`));
    },
    follow: async (t, name, edited = {}) => {
      Object.assign(settings, edited);
      const section = sections.find((candidate) => candidate.name === name);
      assert.ok(section, `there is a section ${name}`);
      let output = '';
      for (const { language, code } of section.blocks) {
        if (language === 'sql') await sql.raw(code.replace(/;$/, '')).execute(db);
        else output += await shell(t, code);
      }
      const isOver = async () => {
        const isUp = (await scene.prometheus.query('up{job="speechgate"} == 1')).length > 0;
        const [fresh] = await scene.prometheus.query('time() - timestamp(speechgate_pending_holds)');
        return isUp && (fresh?.value ?? 9) < 4 && !(await scene.prometheus.firing()).includes(name);
      };
      await until(isOver, TIMEOUT_MS).catch(() => assert.fail(`${name} still fires after:\n${output}`));
      return output;
    },
  };
  const systemctl = await serviceManager(t, {
    'restart speechgate@8081': () => scene.restart(),
    'restart speechgate@8082': async () => {},
    'restart postgresql': async () => database.restore(),
    'start speechgate-worker': () =>
      startCommand(t, programCommand('src/main.ts', '--role=worker'), {
        env: { ...env, ...settings, ADMIN_PORT: '' },
      }).printed(/runs jobs/),
  });
  const shell = async (t: Test, code: string): Promise<string> => {
    const child = startCommand(t, ['sh', '-euc', code], {
      env: {
        ...{ ...env, ...settings, ADMIN: installation.adminUrl, OWNER_DATABASE_URL: owner, DATABASE_APP_ROLE: role },
        ...{ AUDIO_DIR: disk ?? '', PATH: `${systemctl}:${process.env.PATH}` },
      },
      isGroup: true,
    });
    assert.equal(await child.ended(), 0, `${code}\n${child.output()}`);
    return child.output();
  };
  return scene;
}

/** What `systemctl` does: `restart speechgate@8081`, `start speechgate-worker`. */
type Services = Readonly<Record<string, () => Promise<unknown>>>;

/** A `systemctl` that calls these instead of an init system. Tells the folder to put first into PATH. */
async function serviceManager(t: Test, services: Services): Promise<string> {
  const url = await serve(t, async (request, response) => {
    const asked = decodeURIComponent((request.url ?? '').slice(1)).replace('/', ' ');
    const service = services[asked];
    try {
      if (!service) throw new Error(`there is no service to ${asked}`);
      await service();
      response.end();
    } catch (error) {
      response.writeHead(500).end(String(error));
    }
  });
  const folder = await temporaryFolder(t);
  const program = join(folder, 'systemctl');
  await writeFile(program, `#!/bin/sh\nexec curl -fsS "${url}/$1/$2"\n`);
  await chmod(program, 0o755);
  return folder;
}

const speak = ({ call }: Pick<Installation, 'call'>, account: string, text = 'Hello world') =>
  call('/tts', { method: 'POST', json: { text }, headers: { 'x-credit-account': account } });

/** Keeps asking for speech until it is told to stop, or as `ask` does. */
function load(
  scene: Scene,
  callers = 1,
  ask: () => Promise<unknown> = () => speak(scene, scene.card),
): () => Promise<void> {
  let goesOn = true;
  const loop = async () => {
    while (goesOn) {
      await ask().catch(() => {});
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
  };
  const asking = Promise.all(Array.from({ length: callers }, loop)).then(() => {});
  return () => {
    goesOn = false;
    return asking;
  };
}

test('each incident of the runbook raises its alert and ends by following its page', {
  skip: withoutChain || withoutPrometheus,
}, async (t) => {
  const scene = await prepareScene(t);
  mineSteadily(t, chain, 1_000);
  const { db, upstream, checkout, role, disk } = scene;
  const mended: string[] = [];
  const incident = (name: string, work: (t: Test) => Promise<unknown>) =>
    t.test(name, async (t: Test) => {
      await work(t);
      mended.push(name);
    });

  await incident('DebtGrowing', async (t) => {
    await until(async () => (await scene.prometheus.query('speechgate_debt_micro_usd == 0')).length > 0);
    const page = await scene.call(await buy(scene as never, checkout, { amount: '500' }));
    const account = shownAccount(page.text);
    assert.equal((await speak(scene, account, 'x'.repeat(4000))).status, 200);
    const [session] = (await checkout.stripe.checkout.sessions.list()).data;
    await checkout.stripe.refunds.create({ payment_intent: String(session?.payment_intent) });
    await scene.isFiring('DebtGrowing');
    const again = await scene.call('/top-up', form({ amount: '500', accountId: account }));
    const back = new URL(await checkout.pay(again.headers.get('location') ?? ''));
    assert.equal((await scene.call(back.pathname + back.search)).status, 200);
    const output = await scene.follow(t, 'DebtGrowing');
    assert.match(output, /^speechgate_debt_micro_usd 0$/m);
  });

  // What belongs together is caused together.
  const { jobId } = (await later(scene, scene.card)).json;
  if (disk !== undefined) await writeFile(join(disk, 'core.4711'), Buffer.alloc(DISK_BYTES * 0.95));
  upstream.mode = hangBeforeHeaders();
  const left = speak(scene, scene.card).catch(() => undefined);
  await until(
    async () =>
      (await sql`select from transfer where state = 'pending' and lease_until is not null`.execute(db)).rows.length > 0,
  );
  await sql`revoke insert, update on reconciler from ${sql.ref(role)}`.execute(db);
  await incident('SpeechgateDown', async (t) => {
    await scene.gateway.stop('SIGKILL');
    await left;
    await scene.isFiring('SpeechgateDown');
    await scene.follow(t, 'SpeechgateDown');
  });
  await sql`update transfer set lease_until = now() where state = 'pending' and lease_until is not null`.execute(db);
  await scene.isFiring('HoldsPastLease', 'ReconcilerLate');
  await incident('ReconcilerLate', async (t) => {
    assert.match(await scene.follow(t, 'ReconcilerLate'), /permission denied for table reconciler/);
  });
  await incident('HoldsPastLease', (t) => scene.follow(t, 'HoldsPastLease'));

  upstream.mode = mp3();
  scene.node.falsehood = (call) =>
    scene.facilitator.calls.some(({ endpoint }) => endpoint === 'settle') ? failing(call) : undefined;
  scene.facilitator.faults.settle({ broadcast: true, answer: 'reset' });
  t.equal((await payFor(scene, scene.direct)).reply.status, 409);
  upstream.mode = cutChunked();
  const stopLoad = load(scene);
  t.teardown(stopLoad);

  await scene.isFiring('PaymentsInDoubt', 'UpstreamFailing', 'MarginNegative');
  await scene.isFiring('JobsWaiting', 'SigningKeyEnds', 'AuditLate', ...(disk === undefined ? [] : ['AudioDiskFull']));

  const other = await startStubUpstream({ mode: mp3() });
  t.teardown(() => other.close());
  await incident('UpstreamFailing', async (t) => {
    assert.match(await scene.follow(t, 'UpstreamFailing', { SPEECH_BASE_URL: other.url }), /200 audio\/mpeg/);
  });
  other.mode = openAiError(401);
  await scene.isFiring('CredentialRefused');
  other.mode = mp3();
  await incident('CredentialRefused', async (t) => {
    assert.match(await scene.follow(t, 'CredentialRefused'), /setting="SPEECH_API_KEY"/);
  });
  await incident('MarginNegative', (t) => scene.follow(t, 'MarginNegative'));
  await stopLoad();
  await incident('PaymentsInDoubt', (t) => scene.follow(t, 'PaymentsInDoubt', { X402_RPC_URL: chain.rpcUrl }));
  scene.facilitator.faults.verify(invalid('invalid_exact_evm_insufficient_balance'));
  t.equal((await payFor(scene, scene.direct)).reply.status, 502);
  await scene.isFiring('FacilitatorLacksGas');
  await incident('FacilitatorLacksGas', (t) => scene.follow(t, 'FacilitatorLacksGas'));
  await incident('SigningKeyEnds', (t) => scene.follow(t, 'SigningKeyEnds'));
  if (disk !== undefined) await incident('AudioDiskFull', (t) => scene.follow(t, 'AudioDiskFull'));
  await incident('JobsWaiting', async (t) => {
    await scene.follow(t, 'JobsWaiting');
    await until(async () => (await scene.call(`/tts/jobs/${jobId}`)).json.status === 'completed');
  });
  await incident('AuditLate', (t) => scene.follow(t, 'AuditLate'));
  await incident('AuditBroken', async (t) => {
    await sql`alter table transfer disable trigger transfer_terms`.execute(db);
    // As the audit of that night has found it.
    await keepAuditResult(db, 'books', (await audit(db)).length);
    await scene.isFiring('AuditBroken');
    assert.match(await scene.follow(t, 'AuditBroken'), /transfer_terms/);
  });

  await incident('DatabaseUnavailable', async (t) => {
    scene.database.cut();
    await scene.isFiring('DatabaseUnavailable');
    await scene.follow(t, 'DatabaseUnavailable');
  });
  await incident('NotReady', async (t) => {
    scene.settings.STOP_DRAIN_MS = '15000';
    await scene.restart();
    scene.gateway.process.kill('SIGTERM');
    await scene.isFiring('NotReady');
    await scene.follow(t, 'NotReady', { STOP_DRAIN_MS: '0' });
  });
  await incident('PoolExhausted', async (t) => {
    const locker = new pg.Client({ connectionString: scene.env.DATABASE_URL as string });
    locker.on('error', () => {});
    await locker.connect();
    await locker.query('begin; lock table account in access exclusive mode');
    // Each reads a balance by a statement of its own.
    const stop = load(scene, 40, () => scene.call(`/credits/${scene.card}`));
    await scene.isFiring('PoolExhausted');
    await scene.follow(t, 'PoolExhausted');
    await stop();
    await locker.end();
  });
  const slow = await startStubUpstream({ mode: hangBeforeHeaders() });
  t.teardown(() => slow.close());
  await incident('LatencyHigh', async (t) => {
    scene.settings.SPEECH_BASE_URL = slow.url;
    await scene.restart();
    const stop = load(scene, 4);
    await scene.isFiring('LatencyHigh', 'ErrorShare');
    await scene.follow(t, 'LatencyHigh', { SPEECH_BASE_URL: other.url });
    await stop();
  });
  await incident('ErrorShare', async (t) => {
    other.mode = openAiError(500);
    const stop = load(scene);
    await scene.isFiring('ErrorShare');
    other.mode = mp3();
    await scene.follow(t, 'ErrorShare');
    await stop();
  });
  await incident('Shedding', async (t) => {
    Object.assign(scene.settings, { SPEECH_BASE_URL: slow.url, SPEECH_CONCURRENCY: '1' });
    await scene.restart();
    const stop = load(scene, 4);
    await scene.isFiring('Shedding');
    await scene.follow(t, 'Shedding', { SPEECH_BASE_URL: other.url, SPEECH_CONCURRENCY: '256' });
    await stop();
  });

  const strict = await testFacilitator(t, chain, { auth: 'new-token' });
  const payDirect = () => payFor(scene, scene.direct);
  await incident('FacilitatorFailing', async (t) => {
    scene.facilitator.faults.verify(...Array.from({ length: 1000 }, () => 'error' as const));
    const stop = load(scene, 1, payDirect);
    await scene.isFiring('FacilitatorFailing');
    await scene.follow(t, 'FacilitatorFailing', { X402_FACILITATOR_URL: strict.url });
    await stop();
  });
  await incident('FacilitatorRefusesUs', async (t) => {
    const stop = load(scene, 1, payDirect);
    await scene.isFiring('FacilitatorRefusesUs');
    await scene.follow(t, 'FacilitatorRefusesUs', { X402_FACILITATOR_AUTH: 'new-token' });
    await stop();
  });
  await incident('NodeLagging', async (t) => {
    scene.settings.X402_RPC_URL = scene.env.X402_RPC_URL as string;
    scene.node.falsehood = ({ method, params }) =>
      method === 'eth_getBlockByNumber' && params[0] === 'latest'
        ? { result: { number: '0x1', hash: `0x${'0'.repeat(64)}`, timestamp: '0x1' } }
        : undefined;
    await scene.restart();
    await scene.isFiring('NodeLagging');
    await scene.follow(t, 'NodeLagging', { X402_RPC_URL: chain.rpcUrl });
  });

  const all = sections.map(({ name }) => name).filter((name) => disk !== undefined || name !== 'AudioDiskFull');
  t.strictSame(mended.sort(), all.sort());
  t.strictSame(await audit(db), []);
  await until(async () => (await scene.prometheus.firing()).length === 0).catch(() => {});
  t.strictSame(await scene.prometheus.firing(), []);
});
