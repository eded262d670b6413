/**
 * `npm test [-- [--timeout SECONDS] FILE or FOLDER …]`: runs compiled test files with tap (test/suite.ts). They share a
 * PostgreSQL that is started here and thrown away, or that of DATABASE_URL. The last line is `N passed, N failed`; the exit code is
 * 0 only if every planned file ran and passed. With CI set, a skipped test is a failure.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, readdirSync, statSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, relative } from 'node:path';
import { parseArgs } from 'node:util';
import { startPostgres } from '../src/sandbox/postgres.ts';
import { databaseDirectory } from './support/database-directory.ts';
import { type FileResult, readResults } from './support/results.ts';

const BUILD = 'build';

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: { timeout: { type: 'string', default: '600' } },
});
const isCi = Boolean(process.env.CI) && process.env.CI !== 'false';
const interrupted = new AbortController();
for (const signal of ['SIGINT', 'SIGTERM'] as const) process.on(signal, () => interrupted.abort());

process.exitCode = await main(positionals);

async function main(paths: string[]): Promise<number> {
  const missing = paths.find((path) => !existsSync(path));
  if (missing !== undefined) {
    console.error(`${missing} is not a file or folder.`);
    return 2;
  }
  // Clusters that the tests start are listed below it.
  const state = await mkdtemp(join(tmpdir(), 'speechgate-test-state-'));
  const server = await testServer();
  try {
    return await runTap((paths.length > 0 ? paths : ['test']).flatMap(compiledFiles), {
      TEST_DATABASE_URL: server.url,
      XDG_STATE_HOME: state,
      NODE_COMPILE_CACHE: join(state, 'compiled'),
    });
  } finally {
    await server.close();
    await rm(state, { recursive: true, force: true });
  }
}

/** The compiled forms of a test file, or of all below a folder. */
function compiledFiles(path: string): string[] {
  const files = statSync(path).isDirectory()
    ? readdirSync(path, { recursive: true, encoding: 'utf8' }).map((name) => join(path, name))
    : [path];
  return files
    .filter((file) => /\.test\.[tj]s$/.test(file))
    .map((file) => (file.endsWith('.ts') ? join(BUILD, relative('', file).replace(/ts$/, 'js')) : file))
    .sort();
}

async function testServer(): Promise<{ url: string; close(): Promise<void> }> {
  const given = process.env.DATABASE_URL;
  if (given) return { url: given, close: async () => undefined };
  const dataDir = await mkdtemp(join(await databaseDirectory(), 'speechgate-test-'));
  const remove = () => rm(dataDir, { recursive: true, force: true });
  try {
    const { adminUrl: url, stop } = await startPostgres({ dataDir, durable: false });
    return { url, close: () => stop().then(remove) };
  } catch (error) {
    await remove();
    throw error;
  }
}

/** Runs the files in a process group of their own, and ends what is left of it. Returns the exit code. */
async function runTap(files: string[], environment: Record<string, string>): Promise<number> {
  // Tests use databases of their own on the server. TAP variables are those of a run around this one.
  const { DATABASE_URL, ...inherited } = process.env;
  const env = Object.fromEntries(Object.entries(inherited).filter(([name]) => !/^_?TAP/.test(name)));
  const tap = spawn(process.execPath, [`${BUILD}/test/suite.js`, values.timeout, ...files], {
    env: { ...env, ...environment },
    stdio: ['ignore', 'pipe', 'inherit'],
    detached: true,
  });
  const killGroup = () => {
    try {
      process.kill(-(tap.pid as number), 'SIGKILL');
    } catch {
      // The whole group has ended.
    }
  };
  interrupted.signal.addEventListener('abort', killGroup);
  if (interrupted.signal.aborted) killGroup();
  const ended = once(tap, 'close');
  const results = await readResults(files, tap.stdout, printFile);
  const [code] = await ended;
  killGroup();
  if (interrupted.signal.aborted) console.log('\nThe run was interrupted.');
  return printTotals(results) && code === 0 ? 0 : 1;
}

/** The source of a compiled test file. */
function sourceOf(file: string): string {
  return file.startsWith(`${BUILD}/test/`) ? file.slice(BUILD.length + 1).replace(/js$/, 'ts') : file;
}

function printFile({ file, ms, passed, failures, skipped }: FileResult): void {
  const counts = [`${passed} passed`, `${failures.length} failed`, `${skipped.length} skipped`];
  const shown = counts.filter((count, index) => index === 0 || !count.startsWith('0'));
  console.log(`${failures.length > 0 ? 'FAIL' : 'ok  '} ${sourceOf(file)}: ${shown.join(', ')} (${Math.round(ms)} ms)`);
  for (const { title } of failures) console.log(`     failed: ${title}`);
  for (const { title, reason } of skipped) console.log(`     skipped: ${title} (${reason})`);
}

/** Prints the failures in full and, last, the totals. Returns whether all is well. */
function printTotals(results: readonly FileResult[]): boolean {
  for (const { file, failures, output } of results) {
    for (const { title, diagnostics } of failures) console.log(`\n--- ${sourceOf(file)}: ${title}\n${diagnostics}`);
    if (failures.length > 0 && output.length > 0)
      console.log(`\n--- ${sourceOf(file)} printed:\n${output.join('\n').slice(-100_000)}`);
  }
  const sum = (count: (result: FileResult) => number) => results.reduce((total, result) => total + count(result), 0);
  const passed = sum((result) => result.passed);
  const skipped = sum((result) => result.skipped.length);
  const failed = sum((result) => result.failures.length) + (isCi ? skipped : 0);
  console.log(`\n${passed} passed, ${failed} failed${skipped > 0 && !isCi ? `, ${skipped} skipped` : ''}`);
  return failed === 0 && passed > 0;
}
