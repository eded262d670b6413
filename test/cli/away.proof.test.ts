import assert from 'node:assert/strict';
import { test } from 'tap';
import { startChild } from '../support/child.ts';

const NOWHERE = 'postgres://nobody@127.0.0.1:1/nowhere';

for (const [program, args, code] of [
  // Nothing is known to be broken.
  ['src/cli/audit-command.ts', [], 2],
  ['src/cli/feedback-command.ts', [], 1],
  ['src/cli/trace-command.ts', ['4a0cbd9e-7f0f-4a52-9d5e-1c7a2f6b8e30'], 1],
] as const) {
  test(`${program} without its database tells the fault and the way out, and no stack`, async (t) => {
    const child = startChild(t, program, { DATABASE_URL: NOWHERE }, [...args]);
    assert.equal(await child.ended(), code);
    assert.match(child.output(), /can't be read: connect ECONNREFUSED 127\.0\.0\.1:1\. Is DATABASE_URL right/);
    assert.doesNotMatch(child.output(), /^\s+at /m);
  });
}
