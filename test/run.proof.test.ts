import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { fileURLToPath } from 'node:url';
import { t, test } from 'tap';

const RUNNER = fileURLToPath(new URL('run.ts', import.meta.url));
const directory = await mkdtemp(join(tmpdir(), 'speechgate-run-'));
await symlink(fileURLToPath(new URL('../node_modules', import.meta.url)), join(directory, 'node_modules'));
t.teardown(() => rm(directory, { recursive: true, force: true }));

const imports = `import assert from 'node:assert/strict'; import { before, test } from 'tap';`;
const fixtures = {
  passing: `test('one', async () => {}); test('group', async (t) => { t.test('two', async () => {}); t.test('three', async (t) => {
    await t.test('three a', async () => {}); await t.test('three b', async () => {}); }); });
    test('tap counts', async (t) => { t.ok(true); t.ok(true); });`,
  failing: `test('fine', async () => {}); test('wrong', async () => { assert.deepEqual({ cents: 501 }, { cents: 500 }); });
    test('parent', async (t) => { await t.test('child', async () => { throw new TypeError('child broke'); }); });`,
  own: `test('parent', async (t) => { await t.test('child', async () => {}); throw new Error('after its child'); });`,
  hook: `before(() => { throw new Error('hook broke'); }); test('never run', async () => {});`,
  teardown: `test('closes badly', async (t) => { t.teardown(async () => { throw new Error('teardown broke'); }); });`,
  skipped: `test('here', async () => {}); test('not here', { skip: 'needs a voice' }, async () => {});
    test('nor here', async (t) => { t.plan(0, 'needs a chain'); });`,
  onlySkipped: `test('not here', { skip: 'needs a voice' }, async () => {});`,
  crashing: `test('before', async () => {}); test('exits', async () => { process.exit(3); });`,
  quitting: `test('before', async () => {}); test('exits', async () => { process.exit(0); });`,
  broken: `import './no-such-file.ts'; test('unreachable', async () => {});`,
  empty: ``,
  unended: `test('before', async () => {}); test('never ends', async () => { await new Promise(() => {}); });`,
  hanging: `console.log('process', process.pid); test('before', async () => {});
    test('hangs', async () => { setInterval(() => {}, 1000); await new Promise(() => {}); });`,
  lingering: `test('passes', async () => {}); setInterval(() => {}, 1000);`,
  environment: `test('sees the server', async () => { assert.equal(process.env.TEST_DATABASE_URL, 'postgres://given.invalid/x');
    assert.equal(process.env.DATABASE_URL, undefined); });`,
  noisy: `console.log('a word from the process'); console.error('a word of warning');
    test('measures', async (t) => { t.comment('took 5 ms'); assert.fail('no'); });`,
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

test('this file was loaded by tsx, and by no plugin of tap, also in the first run after an installation', async () => {
  const loaders = process.execArgv.filter((argument) => argument.startsWith('--import='));
  assert.ok(loaders.includes('--import=tsx'), loaders.join(' '));
  assert.deepEqual(
    loaders.filter((loader) => /@tapjs\/(typescript|mock)/.test(loader)),
    [],
  );
});

test('what a test starts loads nothing of tap', async () => {
  const started = execFileSync(process.execPath, ['-p', 'process.env.NODE_OPTIONS'], { env: {}, encoding: 'utf8' });
  assert.equal(started, 'undefined\n');
  const child = spawn(process.execPath, ['-p', 'process.env.NODE_OPTIONS'], { env: {} });
  assert.equal(await text(child.stdout), 'undefined\n');
});

test('tests are counted, not assertions, parents or files; each failure is shown in full, with what its file printed', async (t) => {
  const outcome = await run(['passing', 'failing', 'own', 'teardown', 'noisy', 'hook']);
  assert.equal(outcome.code, 1);
  const ofFile = (name: string) => outcome.lines.find((line) => line.includes(`/${name}.test.ts: `)) ?? '';
  const shown = outcome.output.slice(outcome.output.indexOf('---'));
  await t.test('tests are counted', async () => {
    assert.match(ofFile('passing'), /^ok .*: 5 passed \(/);
    assert.match(ofFile('failing'), /^FAIL .*: 1 passed, 2 failed \(/);
    assert.match(last(outcome) ?? '', /^8 passed, [67] failed$/);
  });
  await t.test('a failure has its name, message, expected and actual, stack', async () => {
    for (const part of [
      /failing\.test\.ts: wrong/,
      /AssertionError/,
      /expected: \{ cents: 500 \}/,
      /actual: \{ cents: 501 \}/,
      /parent > child\n/,
      /message: 'child broke'/,
      /stack: .*failing\.test\.ts:\d+/,
    ]) {
      assert.match(shown, part);
    }
  });
  await t.test('a test that fails after its subtests counts, and so does a teardown that fails', async () => {
    assert.match(shown, /after its child/);
    assert.match(shown, /teardown broke/);
    assert.match(ofFile('own'), /^FAIL .*: 1 passed, 1 failed \(/);
    assert.match(ofFile('teardown'), /^FAIL .*: 1 passed, 1 failed \(/);
  });
  await t.test('what a failing file printed and measured is shown', async () => {
    for (const part of [/took 5 ms/, /a word from the process/, /a word of warning/])
      assert.match(outcome.output, part);
  });
  await t.test('a hook that fails counts with its message', async () => {
    assert.match(shown, /hook broke/);
    assert.match(ofFile('hook'), /^FAIL .*: 0 passed, [12] failed \(/);
  });
});

test('a run in which everything passes exits with 0', async () => {
  const outcome = await run(['passing', 'environment']);
  assert.equal(last(outcome), '6 passed, 0 failed');
  assert.equal(outcome.code, 0);
});

test('skipped tests are listed with their reason; in CI they fail', async () => {
  const outcome = await run(['skipped']);
  assert.match(outcome.output, /skipped: not here \(needs a voice\)/);
  assert.match(outcome.output, /skipped: nor here \(needs a chain\)/);
  assert.equal(last(outcome), '1 passed, 0 failed, 2 skipped');
  assert.equal(outcome.code, 0);

  const strict = await run(['skipped'], { environment: { CI: 'true' } });
  assert.match(strict.output, /needs a voice/);
  assert.match(strict.output, /needs a chain/);
  assert.equal(strict.code, 1);
});

test('a run in which nothing has passed fails', async () => {
  const outcome = await run(['onlySkipped']);
  assert.equal(last(outcome), '0 passed, 0 failed, 1 skipped');
  assert.equal(outcome.code, 1);
});

test('a file that crashes, exits early, does not load, has no tests or does not exist fails the run', async () => {
  const outcome = await run(['crashing', 'quitting', 'broken', 'empty', 'unended']);
  for (const name of ['crashing', 'quitting', 'broken', 'empty', 'unended']) {
    assert.match(outcome.output, new RegExp(`--- .*${name}\\.test\\.ts: `));
  }
  assert.match(outcome.output, /no-such-file/);
  assert.match(last(outcome) ?? '', /^\d passed, [5-9] failed$/);
  assert.equal(outcome.code, 1);

  assert.equal((await run([], { parameters: [join(directory, 'missing.test.ts')] })).code, 2);
});

test('a file that hangs, or does not end after its tests, is ended and a failure', async () => {
  const outcome = await run(['hanging', 'lingering'], { parameters: ['--timeout', '4'] });
  for (const name of ['hanging', 'lingering']) {
    assert.match(outcome.output, new RegExp(`--- .*${name}\\.test\\.ts: .*`));
  }
  assert.match(last(outcome) ?? '', /^\d passed, 2 failed$/);
  assert.equal(outcome.code, 1);
});

test('an interrupted run ends its processes and fails', async () => {
  const outcome = await run(['passing', 'hanging'], { interrupt: true });
  assert.match(outcome.output, /interrupted/);
  assert.notEqual(outcome.code, 0);
  const pid = /process (\d+)/.exec(outcome.output)?.[1];
  if (pid) assert.throws(() => process.kill(Number(pid), 0), { code: 'ESRCH' });
});
