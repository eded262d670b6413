import assert from 'node:assert/strict';
import { test } from 'tap';
import { readReconcileOptions } from '../../src/cli/reconcile-options.ts';

const TX = `0x${'aB'.repeat(32)}`;

test('the options of reconcile', async () => {
  assert.deepEqual(readReconcileOptions([]), {});
  const args = ['--since', '2026-01-02T03:04:05.678+00:00', '--book', '--deposit', `${TX}:7`, '--speech', TX];
  assert.deepEqual(readReconcileOptions(args), {
    since: {
      since: new Date('2026-01-02T03:04:05.678Z'),
      bookPlain: true,
      decisions: [
        { transaction: TX.toLowerCase(), logIndex: 7, purpose: 'deposit' },
        { transaction: TX.toLowerCase(), logIndex: undefined, purpose: 'speech' },
      ],
      json: false,
    },
  });
});

for (const [args, fault] of [
  [['--book'], /--since is missing/],
  [['--sinse', '2026-01-01'], /--sinse/],
  [['x'], /x/],
  [['--since', 'yesterday'], /takes a date/],
  [['--since', '2026-01-02T03:04:05'], /zone/],
  [['--since', '2026-13-45'], /takes a date/],
  [['--since', '2999-01-01'], /lies ahead/],
  [['--since', '2026-01-01', '--deposit', '0x12'], /--deposit takes TX/],
] as const) {
  test(`reconcile ${args.join(' ')} is told what is wrong`, async () => {
    const read = readReconcileOptions(args);
    assert.ok('fault' in read);
    assert.match(read.fault, fault);
  });
}
