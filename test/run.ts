/**
 * The test suite: `npm test [file or folder …]`. Runs test/**\/*.test.ts, each file in a process of its own, against a PostgreSQL
 * that it starts and throws away (or that of DATABASE_URL). Files named *.proof.test.ts, which take long, run only with
 * --proof, and then they alone. Prints every failure again at the end; the last line is `N passed, N failed`.
 */
import { readdirSync, statSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { join, relative, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { type RunningPostgres, startPostgres } from '../src/sandbox/postgres.ts';
import { databaseDirectory } from './support/database-directory.ts';
import { type FileResult, runTestFile } from './support/test-file.ts';

const PROJECT = fileURLToPath(new URL('..', import.meta.url));
const CONCURRENCY = 2;

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    proof: { type: 'boolean', default: false },
    /** Seconds without any test starting or ending after which a file has failed. */
    timeout: { type: 'string', default: '120' },
  },
});

const interrupted = new AbortController();
for (const signal of ['SIGINT', 'SIGTERM'] as const) process.on(signal, () => interrupted.abort());

process.chdir(PROJECT);
process.exitCode = await main();

async function main(): Promise<number> {
  const files = positionals.length > 0 ? positionals.flatMap(filesAt) : testFiles(join(PROJECT, 'test'));
  const server = await testServer();
  try {
    const results = await runAll(files, server.url);
    return summarize(results);
  } finally {
    await server.close();
  }
}

function filesAt(path: string): string[] {
  return statSync(path, { throwIfNoEntry: false })?.isDirectory() ? testFiles(resolve(path)) : [resolve(path)];
}

function testFiles(folder: string): string[] {
  return readdirSync(folder, { recursive: true, encoding: 'utf8' })
    .filter((file) => file.endsWith('.test.ts') && file.endsWith('.proof.test.ts') === values.proof)
    .sort()
    .map((file) => join(folder, file));
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

async function runAll(files: string[], databaseUrl: string): Promise<FileResult[]> {
  // Under `node --test`, the first would make the test files report to that instead of to us. The second is not theirs:
  // each makes databases of its own on the server.
  const { NODE_TEST_CONTEXT, DATABASE_URL, ...inherited } = process.env;
  const environment = { ...inherited, TEST_DATABASE_URL: databaseUrl };
  const silenceMs = Number(values.timeout) * 1000;
  const queue = files.values();
  const results: FileResult[] = [];
  const worker = async () => {
    for (const file of queue) {
      if (interrupted.signal.aborted) return;
      const result = await runTestFile(file, { environment, silenceMs, signal: interrupted.signal });
      results.push(result);
      printFile(result);
    }
  };
  await Promise.all(Array.from({ length: CONCURRENCY }, worker));
  return results;
}

function printFile({ path, milliseconds, passed, failures, skips, notes }: FileResult): void {
  const counts = [`${passed} passed`];
  if (failures.length > 0) counts.push(`${failures.length} failed`);
  if (skips.length > 0) counts.push(`${skips.length} skipped`);
  console.log(
    `${failures.length > 0 ? 'FAIL' : 'ok  '} ${relative(PROJECT, path)}: ${counts.join(', ')} (${milliseconds} ms)`,
  );
  for (const failure of failures) console.log(`     failed: ${failure.name}`);
  for (const skip of skips) console.log(`     skipped: ${skip.name} (${skip.reason})`);
  for (const note of notes) console.log(`     ${note}`);
}

/** Prints the failures in full and the totals; tells the exit code. */
function summarize(results: FileResult[]): number {
  for (const { path, failures, output } of results) {
    for (const failure of failures) {
      console.log(`\n--- ${relative(PROJECT, path)}: ${failure.name}\n${failure.diagnostics}`);
    }
    if (failures.length > 0 && output) console.log(`\n--- ${relative(PROJECT, path)} printed:\n${output}`);
  }
  const sum = (count: (result: FileResult) => number) => results.reduce((total, result) => total + count(result), 0);
  const passed = sum((result) => result.passed);
  const failed = sum((result) => result.failures.length);
  const skipped = sum((result) => result.skips.length);
  const skipForbidden = skipped > 0 && Boolean(process.env.CI) && process.env.CI !== 'false';
  if (skipForbidden) console.log('\nThe run has failed: in CI no test may be skipped. See the reasons above.');
  if (interrupted.signal.aborted) console.log('\nThe run was interrupted.');
  console.log(`\n${passed} passed, ${failed} failed${skipped > 0 ? `, ${skipped} skipped` : ''}`);
  return failed > 0 || passed === 0 || skipForbidden || interrupted.signal.aborted ? 1 : 0;
}
