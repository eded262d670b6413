/** The runner fails a run in which a planned file did not run, ended without a plan, hung or was killed. */
import { spawn } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { text } from 'node:stream/consumers';
import { type Test, test } from 'tap';
import { readResults } from './support/results.ts';

/** Runs `npm test` on a file with this body. The file lies in the project, so that it finds tap. */
async function runFile(t: Test, body: string, ...options: string[]): Promise<{ code: number | null; lines: string[] }> {
  const folder = await mkdtemp('build/run-');
  t.teardown(() => rm(folder, { recursive: true }));
  const file = join(folder, 'sample.test.js');
  await writeFile(file, `import { test } from 'tap';\ntest('before', async (t) => t.ok(true));\n${body}\n`);
  const run = spawn(process.execPath, ['build/test/run.js', ...options, file], {
    env: { ...process.env, CI: '', NODE_OPTIONS: '', DATABASE_URL: 'postgres://unused.invalid/' },
    stdio: ['ignore', 'pipe', 'ignore'],
  });
  const code = new Promise<number | null>((resolve) => run.once('close', resolve));
  return { lines: (await text(run.stdout)).trimEnd().split('\n'), code: await code };
}

const CASES: readonly [what: string, body: string, code: number, lastLine: string][] = [
  ['a file that passes', "test('after', async () => {});", 0, '2 passed, 0 failed'],
  ['a failed assertion', "test('after', async (t) => t.equal(1, 2));", 1, '1 passed, 1 failed'],
  ['a file that ends without its plan', "test('after', () => process.exit(0));", 1, '1 passed, 1 failed'],
  ['a killed file', "test('after', () => process.kill(process.pid, 'SIGKILL'));", 1, '1 passed, 1 failed'],
];

for (const [what, body, code, lastLine] of CASES) {
  test(`the exit code is ${code} for ${what}`, async (t) => {
    const run = await runFile(t, body);
    t.same([run.code, run.lines.at(-1)], [code, lastLine], run.lines.join('\n'));
  });
}

test('the exit code is 1 for a file that hangs', async (t) => {
  const { code, lines } = await runFile(
    t,
    "test('hangs', () => new Promise(() => setInterval(() => {}, 1000)));",
    '--timeout=3',
  );
  t.equal(code, 1);
  t.match(lines.at(-1), /^1 passed, [1-9]\d* failed$/, lines.join('\n'));
});

test('a planned file that is missing in the results is a failure', async (t) => {
  const tap = [
    'TAP version 14',
    '# Subtest: a',
    '    # Subtest: one',
    '        1..0',
    '    ok 1 - one',
    '    1..1',
    'ok 1 - a',
    '1..1',
    '',
  ];
  const results = await readResults(['a', 'b'], Readable.from([tap.join('\n')]), () => undefined);
  t.match(results, [
    { file: 'a', passed: 1, failures: [] },
    { file: 'b', passed: 0, failures: [{ title: 'the file did not run' }] },
  ]);
});
