/** The runner fails a run in which a planned file did not run, ended without a plan, hung or was killed. */
import { spawn } from 'node:child_process';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { Readable } from 'node:stream';
import { text } from 'node:stream/consumers';
import { type Test, test } from 'tap';
import { readResults } from './support/results.ts';

/** Runs `npm test` on files with these bodies, each in a folder. They lie in the project, so that they find tap. */
async function runFiles(t: Test, bodies: readonly (readonly [folder: string, body: string])[], ...options: string[]) {
  const folder = await mkdtemp('build/run-');
  t.teardown(() => rm(folder, { recursive: true }));
  const files = bodies.map(([name], index) => join(folder, name, `${index}.test.js`));
  for (const [index, file] of files.entries()) {
    await mkdir(dirname(file), { recursive: true });
    await writeFile(
      file,
      `import { test } from 'tap';\ntest('before', async (t) => t.ok(true));\n${bodies[index]?.[1]}\n`,
    );
  }
  const run = spawn(process.execPath, ['build/test/run.js', ...options, ...files], {
    env: { ...process.env, CI: '', NODE_OPTIONS: '', DATABASE_URL: 'postgres://unused.invalid/' },
    stdio: ['ignore', 'pipe', 'ignore'],
  });
  const code = new Promise<number | null>((resolve) => run.once('close', resolve));
  const lines = (await text(run.stdout)).trimEnd().split('\n');
  const counts = files.map((file) =>
    lines.find((line) => line.includes(file))?.replace(/^(.*): (.*) \(\d+ ms\)$/, '$2'),
  );
  return { lines, counts, code: await code };
}

const FAILING = {
  'a failed assertion': "test('after', async (t) => t.equal(1, 2));",
  'a file that ends without its plan': "test('after', () => process.exit(0));",
  'a killed file': "test('after', () => process.kill(process.pid, 'SIGKILL'));",
  'a file that hangs': "test('hangs', () => new Promise(() => setInterval(() => {}, 1000)));",
};

test('the exit code is 1 if files fail, and each failure is counted', async (t) => {
  const failing = Object.values(FAILING).map((body, index): readonly [string, string] => [`${index}`, body]);
  const end = FAILING['a file that ends without its plan'];
  const { code, lines, counts } = await runFiles(
    t,
    [...failing, ['one process', ''], ['one process', end], ['one process', '']],
    '--timeout=20',
  );
  t.equal(code, 1);
  for (const [index, name] of Object.keys(FAILING).entries())
    t.match(counts[index], /^1 passed, [1-9]\d* failed$/, `${name}\n${lines.join('\n')}`);
  // A file does not run if one before it in its process ended the process.
  t.match(counts.slice(-3), [/^1 passed$/, /^1 passed, [1-9] failed$/, /^0 passed, 1 failed$/]);
  t.match(lines.at(-1), /^6 passed, [1-9]\d* failed$/);
});

test('a planned file that is missing in the results is a failure', async (t) => {
  const tap = [
    'TAP version 14',
    '# Subtest: a',
    '    # Subtest: a',
    '        1..0',
    '    ok 1 - a',
    '    # Subtest: one',
    '        1..0',
    '    ok 2 - one',
    '    1..2',
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
