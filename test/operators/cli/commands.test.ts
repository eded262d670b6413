import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { text } from 'node:stream/consumers';
import { test } from 'tap';
import { testDatabase } from '../../support/database.ts';
import { operatorCommand } from '../../support/operator-command.ts';
import { PROJECT } from '../../support/project.ts';
import { speechgate } from '../../support/speechgate.ts';
import { EXPIRED, startTlsServer } from '../../support/tls-server.ts';

/** If a command went on, it would need no database to fail otherwise. */
const NOWHERE = { DATABASE_URL: 'postgres://nobody@127.0.0.1:1/none' };
const REFUSED = /^Unknown option '--bogus'\. --help lists the options\.\nUsage: speechgate .+\n$/;

test('a command names an unknown option, then its usage, and exits 2', async (t) => {
  for (const command of [
    ...['audit', 'doctor', 'feedback', 'keys', 'migrate', 'paused', 'payments', 'reconcile', 'report', 'trace'],
    ...['pause', 'resume all', 'accounts show', 'accounts find', 'accounts freeze', 'accounts adjust'],
    'accounts refund',
  ]) {
    const [name = '', ...words] = command.split(' ');
    const { code, out, err } = await operatorCommand(NOWHERE, name, ...words, '--bogus');
    t.strictSame([code, out], [2, ''], command);
    t.match(err, REFUSED);
    t.ok(err.includes(`\nUsage: speechgate admin ${command.replace(' all', '')}`), err);
  }
});

for (const [args, err] of [
  [['admin', 'resume', 'all', '--bogus'], REFUSED],
  [
    ['resume', 'all', '--reason', 'x'],
    /takes the ID of a purchase\. Run speechgate admin resume to resume a paused flow/,
  ],
  [['feedback'], /Did you mean speechgate feedback send, or speechgate admin feedback for operators\?$/m],
  [['sya'], 'speechgate has no command sya. Did you mean speechgate say?\n'],
  [['admin', 'adit'], 'speechgate has no command admin adit. Did you mean speechgate admin audit?\n'],
  [['admin', 'say'], 'speechgate has no command admin say. speechgate admin --help lists the commands.\n'],
  [['accounts', 'freze'], /^Did you mean speechgate admin accounts freeze\?$/m],
  [['say', '--ply'], "Unknown option '--ply'. Did you mean --play?\nUsage: speechgate say TEXT|- --out FILE\n"],
] as const) {
  test(`speechgate ${args.join(' ')} exits 2 and leads on`, async (t) => {
    const run = await speechgate(NOWHERE, ...args);
    t.strictSame([run.code, run.out], [2, '']);
    if (typeof err === 'string') t.equal(run.err, err);
    else t.match(run.err, err);
  });
}

for (const [args, out] of [
  [['--version'], /^\d+\.\d+\.\d+\n$/],
  [['help', 'say'], /^speechgate say TEXT/],
  [['help', 'admin', 'feedback'], /^speechgate admin feedback\n/],
  [['help', 'admin'], /^For operators.*:\n(?: {2}.+\n)+$/m],
  [
    [],
    /^For callers:\n(?: {2}.+\n)+\nTo try it.*:\n(?: {2}.+\n)+\nFor operators: speechgate admin .*:\n(?: {2}.+\n)+$/m,
  ],
] as const) {
  test(`speechgate ${args.join(' ')} prints to standard output and exits 0`, async (t) => {
    const run = await speechgate({}, ...args);
    t.strictSame([run.code, run.err], [0, '']);
    t.match(run.out, out);
  });
}

test('a command exits quietly when its output is not read', async (t) => {
  const child = spawn(process.execPath, ['dist/speechgate.js', 'admin', 'feedback', '--help'], {
    cwd: PROJECT,
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  child.stdout.destroy();
  const [err, [code]] = await Promise.all([text(child.stderr), once(child, 'exit')]);
  t.strictSame([code, err], [0, '']);
});

// Of a process of its own, for whose exit code a deployment waits.
test('migrate without its database exits with the fault and the fix, without a stack', async (t) => {
  const { code, output } = await speechgate(NOWHERE, 'migrate');
  t.equal(code, 69);
  t.match(output, /ECONNREFUSED.* in DATABASE_URL\./);
  t.notMatch(output, /^\s+at /m);
  const unset = await operatorCommand({}, 'migrate');
  t.equal(unset.code, 78);
  t.match(unset.output, /DATABASE_URL is not set\. Set it to /);
});

test('migrate names a DATABASE_APP_ROLE that gets no rights', async (t) => {
  const { url } = await testDatabase(t);
  const { code, output } = await operatorCommand({ DATABASE_URL: url, DATABASE_APP_ROLE: 'no_such_role' }, 'migrate');
  t.equal(code, 0);
  t.match(output, /^no_such_role of DATABASE_APP_ROLE got no rights: it does not exist/m);
});

const ID = '4a0cbd9e-7f0f-4a52-9d5e-1c7a2f6b8e30';

/** Every command that needs the database, with what else it needs. */
const COMMANDS: readonly (readonly [string, ...string[]])[] = [
  ['audit'],
  ['audit', '--external'],
  ['feedback'],
  ['trace', ID],
  ['payments'],
  ['report', '--from', '2026-11-01', '--no-outside'],
  ['paused'],
  ['pause', 'card', '--reason', 'a test', '--yes'],
  ['resume', 'all', '--reason', 'a test', '--yes'],
  ['accounts', 'find', '--trace', ID],
  ['accounts', 'show', ID],
  ['accounts', 'freeze', ID, '--reason', 'a test', '--yes'],
  ['reconcile'],
  ['reconcile', '--since', '2026-11-23'],
  ['migrate'],
];

test('every command whose database can not be reached exits 69 with one line', async (t) => {
  const expired = await startTlsServer(t, EXPIRED);
  const expiredUrl = `${expired.url}?sslmode=verify-full&sslrootcert=${expired.ca}`;
  const severalHosts = 'postgres://user:hidden@one.example:5432,two.example:5432/speech';
  for (const [url, fault, commands] of [
    ['postgres://nobody:hidden@127.0.0.1:1/none', /connect ECONNREFUSED/, COMMANDS],
    [expiredUrl, /certificate has expired/, [['audit'], ['migrate']]],
    [severalHosts, /Invalid URL/, [['audit'], ['migrate']]],
  ] as const) {
    for (const [name, ...args] of commands) {
      const env = { DATABASE_URL: url, SPEECHGATE_OPERATOR: 'alice' };
      const { code, out, err } = await operatorCommand(env, name, ...args);
      const what = `${name} ${args.join(' ')}: ${err}`;
      t.strictSame([code, out], [69, ''], what);
      t.match(err, /^The [a-z ]+ can't be [a-z ]+: [^\n]+DATABASE_URL[^\n]+\n$/, what);
      t.match(err, fault);
      t.notMatch(err, /hidden/);
    }
  }
});
