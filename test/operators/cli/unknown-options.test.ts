import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { text } from 'node:stream/consumers';
import { fileURLToPath } from 'node:url';
import { test } from 'tap';
import { operatorCommand } from '../../support/operator-command.ts';
import { projectFile } from '../../support/project.ts';
import { speechgate } from '../../support/speechgate.ts';

const PROJECT = fileURLToPath(projectFile(''));
/** If a command went on, it would need no database to fail otherwise. */
const NOWHERE = { DATABASE_URL: 'postgres://nobody@127.0.0.1:1/none' };
const REFUSED = "Unknown option '--bogus'. --help lists the options.\n";

for (const [name, ...words] of [
  ...[['audit'], ['doctor'], ['feedback'], ['keys'], ['migrate'], ['paused'], ['payments'], ['reconcile'], ['report']],
  ...[['trace'], ['pause'], ['resume', 'all'], ['accounts', 'show'], ['accounts', 'find'], ['accounts', 'freeze']],
  ...[
    ['accounts', 'unfreeze'],
    ['accounts', 'adjust'],
    ['accounts', 'refund'],
  ],
] as [string, ...string[]][]) {
  test(`speechgate ${[name, ...words].join(' ')} names an unknown option in one line and exits 78`, async () => {
    const { code, out, err } = await operatorCommand(NOWHERE, name, ...words, '--bogus');
    assert.deepEqual([code, out, err], [78, '', REFUSED]);
  });
}

for (const [args, expected] of [
  [['resume', 'all'], 78],
  [['resume'], 2],
  [['feedback'], 78],
  [['feedback', 'send'], 2],
] as const) {
  const caller = expected === 2 ? 'callers' : 'operators';
  test(`speechgate ${args.join(' ')} is the command of ${caller}, and exits ${expected}`, async () => {
    const { code, out, err } = await speechgate(NOWHERE, ...args, '--bogus');
    assert.deepEqual([code, out, err], [expected, '', REFUSED]);
  });
}

test('an unknown command prints one line, and no command prints the list', async () => {
  const [unknown, none] = await Promise.all([speechgate({}, 'sya'), speechgate({})]);
  assert.deepEqual([unknown.code, unknown.err], [2, 'speechgate has no command sya. speechgate --help lists them.\n']);
  assert.equal(none.code, 0);
  assert.match(none.out, /^For callers:\n(?: {2}.+\n)+\nFor operators.*:\n(?: {2}.+\n)+$/m);
});

for (const args of [['--help'], ['say', '--help'], ['feedback', '--help']]) {
  test(`speechgate ${args.join(' ')} exits quietly when its output is not read`, async () => {
    const child = spawn(process.execPath, ['dist/speechgate.js', ...args], {
      cwd: PROJECT,
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    child.stdout.destroy();
    const [err, [code]] = await Promise.all([text(child.stderr), once(child, 'exit')]);
    assert.deepEqual([code, err], [0, '']);
  });
}
