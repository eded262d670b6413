import assert from 'node:assert/strict';
import { test } from 'tap';
import { startChild } from '../support/child.ts';
import { testDatabase } from '../support/database.ts';

const CHECK = /does DATABASE_URL name its host, port, user, password and database\?/;

test('migrate with a wrong database prints the fault and the fix, and no stack', async (t) => {
  const { url } = await testDatabase(t);
  const without = (part: Partial<Pick<URL, 'pathname' | 'username' | 'port'>>) =>
    Object.assign(new URL(url), part).href;
  for (const [wrong, fault] of [
    [without({ pathname: '/nowhere' }), /nowhere/],
    [without({ port: '1' }), /ECONNREFUSED/],
  ] as const) {
    const child = startChild(t, 'src/cli/migrate-command.ts', { DATABASE_URL: wrong });
    assert.equal(await child.ended(), 1);
    assert.match(child.output(), fault);
    assert.match(child.output(), CHECK);
    assert.doesNotMatch(child.output(), /^\s+at /m);
  }
});

test('migrate names an unset DATABASE_URL with its fix', async (t) => {
  const child = startChild(t, 'src/cli/migrate-command.ts', {});
  assert.equal(await child.ended(), 78);
  assert.match(child.output(), /DATABASE_URL is not set\. Set it to /);
});
