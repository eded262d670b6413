import assert from 'node:assert/strict';
import { test } from 'tap';
import { testDatabase } from '../../support/database.ts';
import { operatorCommand } from '../../support/operator-command.ts';
import { speechgate } from '../../support/speechgate.ts';

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
    assert.equal(code, 1);
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

const NOWHERE = 'postgres://nobody@127.0.0.1:1/nowhere';

for (const [[name, ...args], code] of [
  // Nothing is known to be broken.
  [['audit'], 2],
  [['feedback'], 1],
  [['trace', '4a0cbd9e-7f0f-4a52-9d5e-1c7a2f6b8e30'], 1],
] as const) {
  test(`speechgate ${name} without its database prints the fix`, async () => {
    const ended = await operatorCommand({ DATABASE_URL: NOWHERE }, name, ...args);
    assert.equal(ended.code, code);
    assert.match(ended.output, /can't be read: connect ECONNREFUSED 127\.0\.0\.1:1\. Check DATABASE_URL/);
    assert.doesNotMatch(ended.output, /^\s+at /m);
  });
}
