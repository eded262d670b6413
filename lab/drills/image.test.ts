/**
 * The ops/Containerfile is built by buildah, on bases that are made of this machine's own files, since none can be fetched: the
 * first borrows /usr while it builds, the second has the C library and nothing else. The service then runs in the image's
 * root as process 1, by its user, its environment and its commands.
 */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { cp, mkdir, readdir, readFile, realpath, symlink, writeFile } from 'node:fs/promises';
import { homedir } from 'node:os';
import { dirname, join } from 'node:path';
import { sql } from 'kysely';
import { type Test, test } from 'tap';
import { openDatabase } from '../../src/db/database.ts';
import { freePort } from '../../src/sandbox/free-port.ts';
import { type Child, startCommand } from '../../test/support/child.ts';
import { testDatabase } from '../../test/support/database.ts';
import { fund, type Gateway, send } from '../../test/support/gateway.ts';
import { later, untilJob } from '../../test/support/jobs.ts';
import { missingProgram } from '../../test/support/missing-program.ts';
import { PROJECT } from '../../test/support/project.ts';
import { temporaryFolder } from '../../test/support/temporary-folder.ts';
import { until } from '../../test/support/until.ts';

/** Starts a command where the service is installed, with nothing in its environment but what is given. */
type Start = (command: readonly string[], env: Record<string, string>) => Child;

const SERVICE = ['node', 'dist/main.js'];
const COMMAND = ['node', 'dist/speechgate.js'];

const audioOf = ({ status, headers, bytes }: Awaited<ReturnType<typeof send>>) => ({
  ...{ status, type: headers.get('content-type'), isLong: bytes.length > 4000 },
});
const SPEECH = { status: 200, type: 'audio/mpeg', isLong: true };

/**
 * Installs a new database by the installed `migrate`, starts a gateway of two processes and a worker, has them speak, audits
 * the books, and stops them by SIGTERM.
 * @param dataDir where the service keeps its files, a new one of this machine unless another one is given
 * @param meanwhile is called with the settings of the gateway while it runs
 */
async function serves(
  t: Test,
  start: Start,
  dataDir?: string,
  meanwhile?: (settings: Record<string, string>) => Promise<void>,
): Promise<void> {
  const { url: databaseUrl } = await testDatabase(t);
  const db = openDatabase(databaseUrl, { maxConnections: 1 });
  t.teardown(() => db.destroy());
  await sql.raw('drop schema public cascade; drop schema graphile_worker cascade; create schema public').execute(db);

  const env = { DATABASE_URL: databaseUrl };
  const migrated = start([...COMMAND, 'migrate'], env);
  assert.equal(await migrated.ended(), 0, migrated.output());
  assert.match(migrated.output(), /^Applied 0001_ledger, /);

  const voice = start([...COMMAND, 'voice'], {});
  await voice.printed(/The voice server listens on \S+/);
  const settings = {
    ...env,
    HOST: '127.0.0.1',
    BASE_URL: 'http://speechgate.test',
    DATA_DIR: dataDir ?? (await folderOf(t)),
    SPEECH_BASE_URL: / listens on (\S+)/.exec(voice.output())?.[1] ?? assert.fail('the voice prints its base'),
    STRIPE_SECRET_KEY: 'sk_test_gateway',
    STRIPE_API_BASE: 'http://127.0.0.1:1',
  };
  const ports = async () => ({ PORT: String(await freePort()), ADMIN_PORT: String(await freePort()) });
  const web = { ...settings, ...(await ports()), WEB_CONCURRENCY: '2' };
  const gateway = start([...SERVICE, '--role=web'], web);
  await gateway.printed(/listens on .* with 2 processes/);
  const url = `http://127.0.0.1:${web.PORT}`;
  const ready = await fetch(`http://127.0.0.1:${web.ADMIN_PORT}/readyz`);
  assert.equal(ready.status, 200, await ready.text());
  assert.equal((await fetch(`${url}/openapi.json`)).status, 200);

  const account = await fund(db, 500);
  const body = { method: 'POST', json: { text: 'Hello world' }, headers: { 'x-credit-account': account } };
  assert.deepEqual(audioOf(await send(url, '/tts', body)), SPEECH);

  const call: Gateway['call'] = (path, sent) => send(url, path, sent);
  const { jobId } = (await later({ call }, account)).json;
  const worker = start([...SERVICE, '--role=worker'], { ...settings, ...(await ports()) });
  assert.equal((await untilJob({ call }, jobId, 'completed', 'failed')).json.status, 'completed');
  assert.deepEqual(audioOf(await call(`/tts/jobs/${jobId}/audio`)), SPEECH);
  await meanwhile?.(web);

  const audited = start([...COMMAND, 'audit'], env);
  assert.equal(await audited.ended(), 0, audited.output());
  await until(() => /"msg":"a job attempt ended[^"]*"/.test(worker.output()));
  assert.deepEqual([await worker.stop(), await gateway.stop()], [0, 0], worker.output() + gateway.output());
  assert.equal(await voice.stop(), 0, voice.output());
}

async function folderOf(t: Test): Promise<string> {
  const folder = await temporaryFolder(t);
  return folder;
}

const MAX_MEGABYTES = 250;
const LICENCE = /licen[cs]e|^copying|^copyright|notice/i;
const BUILD_MS = 300_000;
/** What gcr.io/distroless/cc-debian12 takes of it, as made of the same Debian packages: 23.8 MB. */
const BASE_MEGABYTES = 24;

/** Why there is no image here. */
function obstacle(): string | false {
  if (process.platform !== 'linux') return 'images are of Linux';
  const missing = missingProgram('buildah', '--version') ?? missingProgram('unshare', '--version');
  if (missing !== undefined) return missing;
  if (!process.execPath.startsWith('/usr/')) return 'Node.js is not in /usr, which the build borrows';
  return process.getuid?.() === 0 ? false : 'only root may mount what buildah has built';
}

interface ImageConfig {
  readonly User: string;
  readonly WorkingDir: string;
  readonly Env: string[];
  readonly Cmd: string[];
  readonly StopSignal: string;
  readonly Healthcheck: { readonly Test: [string, ...string[]] };
}

/** Buildah with a store of its own, which is removed after the test. */
async function ownBuildah(t: Test): Promise<(cwd: string, ...args: string[]) => string> {
  const store = await temporaryFolder(t);
  const options = ['--root', join(store, 'root'), '--runroot', join(store, 'run')];
  const buildah = (cwd: string, ...args: string[]) =>
    execFileSync('buildah', [...options, ...args], {
      cwd,
      encoding: 'utf8',
      stdio: ['ignore', 'pipe', 'pipe'],
      timeout: BUILD_MS,
    });
  t.teardown(() => void buildah(store, 'rm', '--all'));
  return buildah;
}

const copyInto = async (root: string, path: string): Promise<void> => {
  await mkdir(join(root, dirname(path)), { recursive: true });
  await cp(await realpath(path), join(root, path));
};

/** A root with node alone, and the directories that /usr of this machine is borrowed by. */
async function buildBase(root: string): Promise<void> {
  for (const name of ['etc', 'proc', 'dev', 'tmp', 'var/lib', 'root', 'usr']) {
    await mkdir(join(root, name), { recursive: true });
  }
  for (const name of ['bin', 'sbin', 'lib', 'lib64']) await symlink(`usr/${name}`, join(root, name));
  await mkdir(join(root, 'usr/local/bin'), { recursive: true });
  await cp(process.execPath, join(root, 'usr/local/bin/node'));
  await writeFile(join(root, 'usr/local/LICENSE'), 'Node.js is licensed\n');
  await writeFile(join(root, 'etc/passwd'), 'root:x:0:0:root:/root:/bin/sh\n');
}

/** A root with the libraries that node asks for, and the directories that every system has. */
async function runtimeBase(root: string): Promise<void> {
  for (const name of ['etc', 'proc', 'dev', 'tmp', 'var/lib', 'usr/local/bin']) {
    await mkdir(join(root, name), { recursive: true });
  }
  const linked = execFileSync('ldd', [process.execPath], { encoding: 'utf8' });
  for (const [path] of linked.matchAll(/\/\S+(?= \()/g)) await copyInto(root, path);
}

test('the image has all licences, and the service runs in it as its user', {
  skip: obstacle(),
}, async (t) => {
  const buildah = await ownBuildah(t);
  const scratch = await temporaryFolder(t);
  await writeFile(join(scratch, 'Containerfile'), 'FROM scratch\nCOPY . /\n');
  for (const [name, make] of [
    ['build', buildBase],
    ['runtime', runtimeBase],
  ] as const) {
    await make(join(scratch, name));
    buildah(scratch, 'build', '--file', join(scratch, 'Containerfile'), '--tag', `base-${name}`, join(scratch, name));
  }
  // Nothing is fetched: what this project's own installation has fetched is in npm's cache.
  await writeFile(join(scratch, 'npmrc'), 'offline=true\n');
  buildah(
    PROJECT,
    ...['build', '--isolation', 'chroot', '--format', 'docker', '--file', 'ops/Containerfile', '--tag', 'speechgate'],
    ...['--build-arg', 'NODE_IMAGE=localhost/base-build', '--build-arg', 'RUNTIME_IMAGE=localhost/base-runtime'],
    ...['--volume', '/usr:/usr:ro', '--volume', `${join(homedir(), '.npm')}:/root/.npm`],
    ...['--volume', `${join(scratch, 'npmrc')}:/root/.npmrc:ro`, PROJECT],
  );
  const inspected = JSON.parse(buildah(PROJECT, 'inspect', '--type', 'image', 'localhost/speechgate'));
  const config: ImageConfig = inspected.Docker.config;
  const root = buildah(PROJECT, 'mount', buildah(PROJECT, 'from', 'localhost/speechgate').trim()).trim();

  const size = (path: string) => Number(execFileSync('du', ['-sb', path], { encoding: 'utf8' }).split('\t')[0]) / 1e6;
  const own = size(join(root, 'app')) + size(join(root, 'usr/local/bin/node'));
  console.error(`the image without its base: ${Math.round(own)} MB`);
  t.ok(own + BASE_MEGABYTES < MAX_MEGABYTES, `${own} MB`);

  for (const path of ['app/LICENSE', 'app/NOTICE', 'usr/share/doc/node/LICENSE'])
    t.ok(existsSync(join(root, path)), path);
  t.strictSame(await lackingLicences(join(root, 'app')), []);

  const start: Start = (command, env) => {
    const [uid = '', gid = ''] = config.User.split(':');
    const inImage = ['unshare', '--fork', '--pid', '--mount-proc', `--root=${root}`, `--wd=${config.WorkingDir}`];
    const ofImage = Object.fromEntries(config.Env.map((line) => line.split(/=(.*)/s).slice(0, 2)));
    return signalled(
      startCommand(t, [...inImage, `--setuid=${uid}`, `--setgid=${gid}`, ...command], { env: { ...ofImage, ...env } }),
    );
  };
  const whoami = start(['node', '-p', '[process.pid, process.getuid(), process.getgid()].join()'], {});
  t.equal(await whoami.ended(), 0, whoami.output());
  t.equal(whoami.output(), '1,65532,65532\n');
  const unset = start(config.Cmd, { AUDIO_STORE: 's3://voices' });
  t.equal(await unset.ended(), 78, unset.output());
  t.notMatch(unset.output(), 'AUDIO_STORE', 'the image has the AWS SDK');

  t.equal(config.StopSignal, 'SIGTERM');
  await serves(t, start, '/var/lib/speechgate', async (settings) => {
    const [, ...check] = config.Healthcheck.Test;
    assert.equal(await start(check, settings).ended(), 0);
    assert.equal(await start(check, { ...settings, ADMIN_PORT: '1' }).ended(), 1);
  });
});

/** The files with licence texts, as this project's own installation has them, that the image's packages lack. */
async function lackingLicences(app: string): Promise<string[]> {
  const { packages } = JSON.parse(await readFile(join(PROJECT, 'package-lock.json'), 'utf8'));
  const lacking: string[] = [];
  for (const path of Object.keys(packages).filter((path) => path !== '' && existsSync(join(app, path)))) {
    const files = await readdir(join(PROJECT, path));
    const licences = files.filter((name) => LICENCE.test(name));
    // Some packages have theirs in the README only.
    const texts = licences.length > 0 ? licences : files.filter((name) => /^readme\b/i.test(name));
    lacking.push(...texts.map((name) => join(path, name)).filter((text) => !existsSync(join(app, text))));
  }
  return lacking;
}

/** `unshare` keeps signals to itself; they are for process 1 of its namespace. */
const signalled = (child: Child): Child => ({
  ...child,
  stop: (signal = 'SIGTERM') => {
    const { pid } = child.process;
    process.kill(Number(readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8')), signal);
    return child.ended();
  },
});
