import assert from 'node:assert/strict';
import { test } from 'tap';
import { findMisspelt } from '../../src/settings/misspelt.ts';

const SETTINGS = new Set(['HOST', 'RATE_LIMIT_MAX', 'X402_PAY_TO', 'DATABASE_URL', 'SANDBOX_DATABASE_URL']);

for (const [name, meant] of [
  ['RATE_LIMT_MAX', 'RATE_LIMIT_MAX'],
  ['RATE_LIMITS_MAX', 'RATE_LIMIT_MAX'],
  ['DATABSE_URL', 'DATABASE_URL'],
  ['X402_PAYTO', 'X402_PAY_TO'],
  ['DATABASE_URI', 'DATABASE_URL'],
] as const) {
  test(`${name} is taken for a misspelt ${meant}`, async () => {
    assert.deepEqual(findMisspelt([name], SETTINGS), [{ name, meant }]);
  });
}

test('settings themselves, and names that resemble none or only a short one, are left alone', async () => {
  assert.deepEqual(findMisspelt([...SETTINGS, 'HOME', 'PATH', 'RATE', 'TEST_DATABASE_URL', 'PWD'], SETTINGS), []);
});
