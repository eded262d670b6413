import { PassThrough, Readable } from 'node:stream';
import { test } from 'tap';
import { EXIT_USAGE, parseCommandLine } from '../../../src/lib/arguments.ts';
import { ExitError } from '../../../src/operators/cli/command.ts';
import { confirm } from '../../../src/operators/cli/operator-options.ts';
import { RECONCILE_SYNTAX, readSinceOptions } from '../../../src/operators/cli/reconcile-command.ts';

const read = (args: readonly string[]) => readSinceOptions(parseCommandLine(RECONCILE_SYNTAX, args).values);
const TX = `0x${'aB'.repeat(32)}`;

test('reconcile parses its options', async (t) => {
  t.equal(read([]), undefined);
  const args = ['--since', '2026-01-02T03:04:05.678+00:00', '--book', '--deposit', `${TX}:7`, '--speech', TX];
  t.strictSame(read(args), {
    since: new Date('2026-01-02T03:04:05.678Z'),
    bookPlain: true,
    decisions: [
      { transaction: TX.toLowerCase(), logIndex: 7, purpose: 'deposit' },
      { transaction: TX.toLowerCase(), logIndex: undefined, purpose: 'speech' },
    ],
    json: false,
  });
});

for (const [args, fault] of [
  [['--book'], /--book, .* need --since TIME/],
  [['--sinse', '2026-01-01'], /--sinse/],
  [['x'], /x/],
  [['--since', 'yesterday'], /must be a date/],
  [['--since', '2026-01-02T03:04:05'], /zone/],
  [['--since', '2026-13-45'], /must be a date/],
  [['--since', '2999-01-01'], /is in the future/],
  [['--since', '2026-01-01', '--deposit', '0x12'], /--deposit 0x12 is not a transfer/],
] as const) {
  test(`reconcile ${args.join(' ')} is refused with the reason`, async (t) => {
    t.throws(() => read(args), { message: fault });
  });
}

for (const [answer, isConfirmed] of Object.entries({ 'y\n': true, 'YES \n': true, '\n': false, 'no\n': false })) {
  test(`the answer ${JSON.stringify(answer)} at the terminal ${isConfirmed ? 'confirms' : 'refuses'} a change`, async (t) => {
    const stdin = Object.assign(Readable.from([answer]), { isTTY: true });
    const stderr = new PassThrough({ encoding: 'utf8' });
    const asked = confirm({ env: {}, console, stdin, stdout: stderr, stderr }, 'This will pause card.', false);
    if (isConfirmed) await asked;
    else await t.rejects(asked, new ExitError('Nothing was changed.', EXIT_USAGE));
    t.equal(stderr.read(), 'This will pause card.\nContinue? [y/N] ');
  });
}
