import assert from 'node:assert/strict';
import { execFileSync, spawnSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { sql } from 'kysely';
import type { Test } from 'tap';
import { migrate } from '../../src/db/migrate.ts';
import { testChain } from '../../test/support/chain.ts';
import { type Child, programCommand, startCommand } from '../../test/support/child.ts';
import { type Installation, prepareInstallation } from '../../test/support/installation.ts';
import { type Prometheus, startPrometheus } from '../../test/support/prometheus.ts';
import { runbook } from '../../test/support/runbook.ts';
import { startTcpProxy, type TcpProxy } from '../../test/support/tcp-proxy.ts';
import { until } from '../../test/support/until.ts';
import { serviceManager } from './service-manager.ts';

const DAY_MS = 86_400_000;
const TIMEOUT_MS = 60_000;
export const DISK_BYTES = 8 * 1024 * 1024;

export const { chain, skip: withoutChain } = await testChain();
/** The sections of docs/runbook.md. */
export const sections = await runbook();

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
export interface Scene extends Installation {
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
export async function prepareScene(t: Test): Promise<Scene> {
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
