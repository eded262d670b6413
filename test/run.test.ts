import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { after, test } from 'node:test';
import { fileURLToPath } from 'node:url';

const RUNNER = fileURLToPath(new URL('run.ts', import.meta.url));
const directory = await mkdtemp(join(tmpdir(), 'speechgate-run-'));
after(() => rm(directory, { recursive: true, force: true }));

const imports = `import assert from 'node:assert/strict'; import { before, describe, test } from 'node:test';`;
const fixtures = {
  passing: `test('one', () => {}); describe('suite', () => { test('two', () => {}); test('three', async (t) => {
    await t.test('three a', () => {}); await t.test('three b', () => {}); }); });`,
  failing: `test('fine', () => {}); test('wrong', () => { assert.deepEqual({ cents: 501 }, { cents: 500 }); });
    test('parent', async (t) => { await t.test('child', () => { throw new TypeError('child broke'); }); });`,
  hook: `describe('group', () => { before(() => { throw new Error('hook broke'); }); test('never run', () => {}); });`,
  skipped: `test('here', () => {}); test('not here', { skip: 'needs a voice' }, () => {});
    describe('nor here', { skip: 'needs a chain' }, () => { test('inner', () => {}); });`,
  crashing: `test('before', () => {}); test('exits', () => { process.exit(3); });`,
  quitting: `test('before', () => {}); test('exits', () => { process.exit(0); });`,
  broken: `import './no-such-file.ts'; test('unreachable', () => {});`,
  empty: ``,
  hanging: `console.log('process', process.pid); test('before', () => {}); test('hangs', async () => { setInterval(() => {}, 1000); await new Promise(() => {}); });`,
  lingering: `test('passes', () => {}); setInterval(() => {}, 1000);`,
  environment: `test('sees the server', () => { assert.equal(process.env.TEST_DATABASE_URL, 'postgres://given.invalid/x');
    assert.equal(process.env.DATABASE_URL, undefined); });`,
  noisy: `console.log('a word from the process'); test('measures', (t) => { t.diagnostic('took 5 ms'); assert.fail('no'); });`,
};

interface Outcome {
  readonly code: number | null;
  readonly lines: string[];
  readonly output: string;
}

/** Runs the runner over fixture files. */
async function run(
  names: (keyof typeof fixtures)[],
  options: { parameters?: string[]; environment?: NodeJS.ProcessEnv; interrupt?: boolean } = {},
): Promise<Outcome> {
  const files = names.map((name) => join(directory, `${name}.test.ts`));
  await Promise.all(names.map((name, index) => writeFile(files[index] as string, `${imports}\n${fixtures[name]}\n`)));
  const child = spawn(process.execPath, ['--import', 'tsx', RUNNER, ...(options.parameters ?? []), ...files], {
    env: { ...process.env, CI: '', DATABASE_URL: 'postgres://given.invalid/x', ...options.environment },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  if (options.interrupt) child.stdout.once('data', () => child.kill('SIGINT'));
  const [output, [code]] = await Promise.all([text(child.stdout), once(child, 'close')]);
  return { code, output, lines: output.trimEnd().split('\n') };
}

const last = (outcome: Outcome) => outcome.lines.at(-1);

test('test cases are counted, not suites, parents or files', async () => {
  const outcome = await run(['passing', 'failing']);
  assert.equal(last(outcome), '5 passed, 2 failed');
  assert.equal(outcome.code, 1);
});

test('a run in which everything passes exits with 0', async () => {
  const outcome = await run(['passing', 'environment']);
  assert.equal(last(outcome), '5 passed, 0 failed');
  assert.equal(outcome.code, 0);
});

test('each failure is shown in full: name, message, expected and actual, stack', async () => {
  const { output } = await run(['failing']);
  const shown = output.slice(output.indexOf('---'));
  for (const part of [
    /failing\.test\.ts: wrong/,
    /AssertionError/,
    /expected: \{ cents: 500 \}/,
    /actual: \{ cents: 501 \}/,
  ]) {
    assert.match(shown, part);
  }
  assert.match(shown, /parent > child\nTypeError: child broke\n +at /);
});

test('what a failing file printed and measured is shown', async () => {
  const { output } = await run(['noisy']);
  assert.match(output, /took 5 ms/);
  assert.match(output, /a word from the process/);
});

test('a hook that fails counts with its message', async () => {
  const outcome = await run(['hook']);
  assert.match(outcome.output, /hook broke/);
  assert.match(last(outcome) ?? '', /^0 passed, [12] failed$/);
  assert.equal(outcome.code, 1);
});

test('skipped tests are listed with their reason; in CI they fail the run', async () => {
  const outcome = await run(['skipped']);
  assert.match(outcome.output, /skipped: not here \(needs a voice\)/);
  assert.match(outcome.output, /skipped: nor here \(needs a chain\)/);
  assert.equal(last(outcome), '1 passed, 0 failed, 2 skipped');
  assert.equal(outcome.code, 0);

  const strict = await run(['skipped'], { environment: { CI: 'true' } });
  assert.match(strict.output, /in CI no test may be skipped/);
  assert.equal(last(strict), '1 passed, 0 failed, 2 skipped');
  assert.equal(strict.code, 1);
});

test('a file that crashes, exits early, does not load or has no tests is a failure', async () => {
  const outcome = await run(['crashing', 'quitting', 'broken', 'empty']);
  for (const [name, reason] of [
    ['crashing', 'The process ended with exit code 3'],
    ['quitting', 'ended early'],
    ['broken', 'The process ended with exit code 1, before its first test'],
    ['empty', 'has no tests'],
  ]) {
    assert.match(outcome.output, new RegExp(`--- .*${name}\\.test\\.ts: .*\n.*${reason}`));
  }
  assert.match(outcome.output, /no-such-file/);
  assert.match(last(outcome) ?? '', /^\d passed, 4 failed$/);
  assert.equal(outcome.code, 1);
});

test('a file that hangs, or does not end after its tests, is ended and a failure', async () => {
  const outcome = await run(['hanging', 'lingering'], { parameters: ['--timeout', '4'] });
  for (const name of ['hanging', 'lingering']) {
    assert.match(outcome.output, new RegExp(`--- .*${name}\\.test\\.ts: .*\nNothing happened for 4 s`));
  }
  assert.match(last(outcome) ?? '', /^\d passed, 2 failed$/);
  assert.equal(outcome.code, 1);
});

test('an interrupted run ends its processes and fails', async () => {
  const outcome = await run(['passing', 'hanging'], { interrupt: true });
  assert.match(outcome.output, /interrupted/);
  assert.equal(outcome.code, 1);
  const pid = /process (\d+)/.exec(outcome.output)?.[1];
  if (pid) assert.throws(() => process.kill(Number(pid), 0), { code: 'ESRCH' });
});
