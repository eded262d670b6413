import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'tap';
import { writeTrustFile } from '../../src/sandbox/trust-file.ts';
import { parseSigningKeys, rotateKeys } from '../../src/x402/signing-keys.ts';

test('trust.json has each public key of the gateway to pin, and nothing of the private ones', async (t) => {
  const folder = t.testdir();
  const stored = JSON.stringify(rotateKeys(undefined, new Date()));
  await writeTrustFile(folder, stored);
  const keys = parseSigningKeys(stored, new Date());
  assert.equal(keys.length, 2);
  assert.deepEqual(
    JSON.parse(await readFile(join(folder, 'trust.json'), 'utf8')),
    keys.map(({ keyId, publicJwk: { x, y } }) => ({ keyId, publicKeyJwk: { kty: 'EC', crv: 'P-256', x, y } })),
  );
});
