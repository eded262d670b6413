import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { text } from 'node:stream/consumers';
import { fileURLToPath } from 'node:url';
import { test } from 'tap';
import { testDatabase } from '../../support/database.ts';
import { operatorCommand } from '../../support/operator-command.ts';
import { projectFile } from '../../support/project.ts';
import { speechgate } from '../../support/speechgate.ts';
import { EXPIRED, startTlsServer } from '../../support/tls-server.ts';

const PROJECT = fileURLToPath(projectFile(''));
/** If a command went on, it would need no database to fail otherwise. */
const NOWHERE = { DATABASE_URL: 'postgres://nobody@127.0.0.1:1/none' };
const REFUSED = "Unknown option '--bogus'. --help lists the options.\n";

for (const command of [
  ...['audit', 'doctor', 'feedback', 'keys', 'migrate', 'paused', 'payments', 'reconcile', 'report', 'trace', 'pause'],
  ...['resume all', 'accounts show', 'accounts find', 'accounts freeze', 'accounts unfreeze', 'accounts adjust'],
  'accounts refund',
]) {
  test(`speechgate ${command} names an unknown option in one line and exits 78`, async () => {
    const [name = '', ...words] = command.split(' ');
    const { code, out, err } = await operatorCommand(NOWHERE, name, ...words, '--bogus');
    assert.deepEqual([code, out, err], [78, '', REFUSED]);
  });
}

for (const [args, expected] of [
  [['resume', 'all'], 78],
  [['resume'], 2],
  [['feedback'], 78],
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

for (const args of [['--help'], ['feedback', '--help']]) {
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

const CHECK = /DATABASE_URL names its host, port, user, password and database\./;

test('migrate with a wrong database prints the fault and the fix without a stack', async (t) => {
  const { url } = await testDatabase(t);
  const without = (part: Partial<Pick<URL, 'pathname' | 'username' | 'port'>>) =>
    Object.assign(new URL(url), part).href;
  for (const [run, wrong, fault] of [
    [operatorCommand, without({ pathname: '/nowhere' }), /nowhere/],
    // A process of its own, whose exit code a deployment waits for.
    [speechgate, without({ port: '1' }), /ECONNREFUSED/],
  ] as const) {
    const { code, output } = await run({ DATABASE_URL: wrong }, 'migrate');
    assert.equal(code, 2);
    assert.match(output, fault);
    assert.match(output, CHECK);
    assert.doesNotMatch(output, /^\s+at /m);
  }
});

test('migrate names an unset DATABASE_URL with its fix', async () => {
  const { code, output } = await operatorCommand({}, 'migrate');
  assert.equal(code, 78);
  assert.match(output, /DATABASE_URL is not set\. Set it to /);
});

/** Every command that needs the database, with what else it needs. */
const COMMANDS: readonly (readonly [string, ...string[]])[] = [
  ['audit'],
  ['audit', '--external'],
  ['feedback'],
  ['trace', '4a0cbd9e-7f0f-4a52-9d5e-1c7a2f6b8e30'],
  ['payments'],
  ['report', '--from', '2026-11-01', '--no-outside'],
  ['paused'],
  ['pause', 'card', '--reason', 'a test', '--yes'],
  ['resume', 'all', '--reason', 'a test', '--yes'],
  ['accounts', 'find', '--trace', '4a0cbd9e-7f0f-4a52-9d5e-1c7a2f6b8e30'],
  ['accounts', 'show', '4a0cbd9e-7f0f-4a52-9d5e-1c7a2f6b8e30'],
  ['accounts', 'freeze', '4a0cbd9e-7f0f-4a52-9d5e-1c7a2f6b8e30', '--reason', 'a test', '--yes'],
  ['reconcile'],
  ['reconcile', '--since', '2026-11-23'],
  ['migrate'],
];

test('every command whose database can not be reached exits 2 with one line', async (t) => {
  const expired = await startTlsServer(t, EXPIRED);
  for (const [url, fault] of [
    ['postgres://nobody:hidden@127.0.0.1:1/none', /connect ECONNREFUSED/],
    [`${expired.url}?sslmode=verify-full&sslrootcert=${expired.ca}`, /certificate has expired/],
    ['postgres://user:hidden@one.example:5432,two.example:5432/speech', /Invalid URL/],
  ] as const) {
    for (const [name, ...args] of COMMANDS) {
      // These read all settings first, and refuse the URL with them.
      if (!URL.canParse(url) && (['payments', 'reconcile'].includes(name) || args.includes('--external'))) continue;
      const env = { DATABASE_URL: url, SPEECHGATE_OPERATOR: 'alice' };
      const { code, out, err } = await operatorCommand(env, name, ...args);
      const what = `${name} ${args.join(' ')}: ${err}`;
      assert.deepEqual([code, out], [2, ''], what);
      assert.match(err, /^The [a-z ]+ can't be [a-z ]+: [^\n]+DATABASE_URL[^\n]+\n$/, what);
      assert.match(err, fault);
      assert.doesNotMatch(err, /hidden/);
    }
  }
});
