import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { text } from 'node:stream/consumers';
import { fileURLToPath } from 'node:url';
import { test } from 'tap';
import { speechgate } from '../support/speechgate.ts';

const PROJECT = fileURLToPath(new URL('../..', import.meta.url));
const OPERATORS = ['audit', 'doctor', 'feedback', 'keys', 'migrate', 'paused', 'reconcile', 'report', 'trace'];
const CALLERS = ['say', 'top-up', 'resume'];

for (const command of OPERATORS) {
  test(`speechgate ${command} tells an unknown option and how it is used, and ends with 78`, async () => {
    // Were it to go on, it would need no database to fail otherwise.
    const { code, out, err } = await speechgate(
      { DATABASE_URL: 'postgres://nobody@127.0.0.1:1/none' },
      command,
      '--bogus',
    );
    assert.equal(code, 78, err);
    assert.equal(out, '');
    assert.match(err, /^Unknown option '--bogus'\.\n(speechgate|npm run) /);
    assert.doesNotMatch(err, /^ +at /m);
  });
}

for (const command of CALLERS) {
  test(`speechgate ${command} tells an unknown option in one line, and ends with 2`, async () => {
    const { code, out, err } = await speechgate({}, command, '--bogus');
    assert.deepEqual([code, out, err], [2, '', "Unknown option '--bogus'. --help lists what is taken.\n"]);
  });
}

test('an unknown command is one line, and no command the list of both groups', async () => {
  const [unknown, none] = await Promise.all([speechgate({}, 'sya'), speechgate({})]);
  assert.deepEqual([unknown.code, unknown.err], [2, 'speechgate has no command sya. speechgate --help lists them.\n']);
  assert.equal(none.code, 0);
  assert.match(none.out, /^For those who speak:\n(?: {2}.+\n)+\nFor operators.*:\n(?: {2}.+\n)+$/m);
});

for (const args of [['--help'], ['say', '--help'], ['report', '--help']]) {
  test(`speechgate ${args.join(' ')} ends quietly when nobody reads what it prints`, async () => {
    const child = spawn(process.execPath, ['bin/speechgate.js', ...args], {
      cwd: PROJECT,
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    child.stdout.destroy();
    const [err, [code]] = await Promise.all([text(child.stderr), once(child, 'exit')]);
    assert.deepEqual([code, err], [0, '']);
  });
}
