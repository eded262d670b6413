/**
 * The test suite: `npm test [file or folder …]`. tap runs test/**\/*.test.ts, each file in a process of its own, against a
 * PostgreSQL that is started here and thrown away (or that of DATABASE_URL). Files named *.proof.test.ts, which take long,
 * run only with --proof, and then they alone. "tap" in package.json has the rest; the last line is `N passed, N failed`.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, statSync } from 'node:fs';
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { dirname, join, relative, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { type RunningPostgres, startPostgres } from '../src/sandbox/postgres.ts';
import { databaseDirectory } from './support/database-directory.ts';

const PROJECT = fileURLToPath(new URL('..', import.meta.url));
const TAP = join(createRequire(import.meta.url).resolve('tap/package.json'), '../dist/esm/run.mjs');
const MANIFEST = join(PROJECT, 'package.json');
/** The plugins that the installed tap was built with. */
const BUILT_WITH = join(PROJECT, 'node_modules/.cache/speechgate/tap-plugins.json');

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    proof: { type: 'boolean', default: false },
    /** Seconds after which a file has failed. */
    timeout: { type: 'string' },
  },
});

const interrupted = new AbortController();
for (const signal of ['SIGINT', 'SIGTERM'] as const) process.on(signal, () => interrupted.abort());

process.exitCode = await main();

async function main(): Promise<number> {
  const missing = positionals.find((path) => !existsSync(path));
  if (missing !== undefined) {
    console.error(`${missing} is no file or folder.`);
    return 2;
  }
  const files = (positionals.length > 0 ? positionals : [join(PROJECT, 'test')]).map(filesAt);
  if (!(await buildTap())) return 1;
  // The databases of the tests are listed with them, and gone with them.
  const state = await mkdtemp(join(tmpdir(), 'speechgate-test-state-'));
  process.env.XDG_STATE_HOME = state;
  const server = await testServer();
  try {
    return await runTap(files, { TEST_DATABASE_URL: server.url });
  } finally {
    await server.close();
    await rm(state, { recursive: true, force: true });
  }
}

/**
 * Builds tap with the plugins that package.json names, after each installation once. A run would do so by itself, but only the next
 * one would load its files by them. False when it failed.
 */
async function buildTap(): Promise<boolean> {
  const plugins = JSON.stringify(JSON.parse(await readFile(MANIFEST, 'utf8')).tap.plugin);
  const builtWith = await readFile(BUILT_WITH, 'utf8').catch(() => undefined);
  if (builtWith === plugins) return true;
  const [code] = await once(spawn(process.execPath, [TAP, 'build'], { cwd: PROJECT, stdio: 'inherit' }), 'close');
  if (code !== 0) return false;
  await mkdir(dirname(BUILT_WITH), { recursive: true });
  await writeFile(BUILT_WITH, plugins);
  return true;
}

/** A pattern for tap. */
function filesAt(path: string): string {
  const found = relative(PROJECT, resolve(path));
  if (!statSync(path).isDirectory()) return found;
  return join(found, '**', values.proof ? '*.proof.test.ts' : '!(*.proof).test.ts');
}

async function testServer(): Promise<{ url: string; close(): Promise<void> }> {
  const given = process.env.DATABASE_URL;
  if (given) return { url: given, close: async () => undefined };
  const dataDir = await mkdtemp(join(await databaseDirectory(), 'speechgate-test-'));
  const remove = () => rm(dataDir, { recursive: true, force: true });
  let postgres: RunningPostgres;
  try {
    postgres = await startPostgres({ dataDir, durable: false });
  } catch (error) {
    await remove();
    throw error;
  }
  return {
    url: postgres.adminUrl,
    close: async () => {
      await postgres.stop();
      await remove();
    },
  };
}

/** Runs the files in a process group of their own, of which nothing is left afterwards. Tells the exit code. */
async function runTap(files: string[], environment: Record<string, string>): Promise<number> {
  // DATABASE_URL is not for the test files: each makes databases of its own on the server. The other ones are those of a
  // test runner around this one.
  const inherited = Object.entries(process.env).filter(
    ([name]) => name !== 'DATABASE_URL' && name !== 'NODE_TEST_CONTEXT' && !/^_?TAP/.test(name),
  );
  const timeout = values.timeout ?? (values.proof ? '900' : '120');
  const inCi = Boolean(process.env.CI) && process.env.CI !== 'false';
  // Those that take long wait for leases and time limits half of it.
  const jobs = values.proof ? ['--jobs=3'] : [];
  const parameters = [
    `--timeout=${timeout}`,
    ...jobs,
    ...(inCi ? ['--fail-skip'] : []),
    ...files.map((f) => `--include=${f}`),
  ];
  const tap = spawn(process.execPath, ['--import', 'tsx', TAP, ...parameters], {
    cwd: PROJECT,
    env: { ...Object.fromEntries(inherited), ...environment },
    stdio: ['ignore', 'inherit', 'inherit'],
    detached: true,
  });
  const killGroup = () => {
    try {
      process.kill(-(tap.pid as number), 'SIGKILL');
    } catch {
      // All of it has ended.
    }
  };
  interrupted.signal.addEventListener('abort', killGroup);
  if (interrupted.signal.aborted) killGroup();
  const [code] = await once(tap, 'close');
  killGroup();
  if (interrupted.signal.aborted) console.log('\nThe run was interrupted.');
  return code ?? 1;
}
