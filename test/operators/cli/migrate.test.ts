import assert from 'node:assert/strict';
import { test } from 'tap';
import { startChild } from '../../support/child.ts';
import { testDatabase } from '../../support/database.ts';

const CHECK = /DATABASE_URL names its host, port, user, password and database\./;

test('migrate with a wrong database prints the fault and the fix without a stack', async (t) => {
  const { url } = await testDatabase(t);
  const without = (part: Partial<Pick<URL, 'pathname' | 'username' | 'port'>>) =>
    Object.assign(new URL(url), part).href;
  for (const [wrong, fault] of [
    [without({ pathname: '/nowhere' }), /nowhere/],
    [without({ port: '1' }), /ECONNREFUSED/],
  ] as const) {
    const child = startChild(t, 'src/operators/cli/migrate-command.ts', { DATABASE_URL: wrong });
    assert.equal(await child.ended(), 1);
    assert.match(child.output(), fault);
    assert.match(child.output(), CHECK);
    assert.doesNotMatch(child.output(), /^\s+at /m);
  }
});

test('migrate names an unset DATABASE_URL with its fix', async (t) => {
  const child = startChild(t, 'src/operators/cli/migrate-command.ts', {});
  assert.equal(await child.ended(), 78);
  assert.match(child.output(), /DATABASE_URL is not set\. Set it to /);
});

const NOWHERE = 'postgres://nobody@127.0.0.1:1/nowhere';

for (const [program, args, code] of [
  // Nothing is known to be broken.
  ['src/operators/cli/audit-command.ts', [], 2],
  ['src/operators/cli/feedback-command.ts', [], 1],
  ['src/operators/cli/trace-command.ts', ['4a0cbd9e-7f0f-4a52-9d5e-1c7a2f6b8e30'], 1],
] as const) {
  test(`${program} without its database prints the fix`, async (t) => {
    const child = startChild(t, program, { DATABASE_URL: NOWHERE }, [...args]);
    assert.equal(await child.ended(), code);
    assert.match(child.output(), /can't be read: connect ECONNREFUSED 127\.0\.0\.1:1\. Check DATABASE_URL/);
    assert.doesNotMatch(child.output(), /^\s+at /m);
  });
}
