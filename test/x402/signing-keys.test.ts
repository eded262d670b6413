import assert from 'node:assert/strict';
import { mkdtemp, readFile, rm, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'tap';
import { parseSigningKeys, rotateKeys, SigningKeysError, type StoredKeys } from '../../src/x402/signing-keys.ts';
import { startChild } from '../support/child.ts';

const NOW = new Date('2026-01-01T00:00:00Z');
const days = (count: number) => new Date(NOW.getTime() + count * 86_400_000);
const statuses = (stored: StoredKeys) => stored.keys.map(({ status }) => status);
const parse = (stored: unknown, now = NOW) => parseSigningKeys(JSON.stringify(stored), now);

test('rotation: current, next -> retiring, current, next; a retired key is dropped when its time is over', async () => {
  const first = rotateKeys(undefined, NOW);
  assert.deepEqual(statuses(first), ['current', 'next']);
  const second = rotateKeys(first, days(10));
  assert.deepEqual(statuses(second), ['retiring', 'current', 'next']);
  assert.equal(second.keys[1]?.kid, first.keys[1]?.kid);
  assert.equal(second.keys[0]?.validUntil, days(40).toISOString());
  const third = rotateKeys(second, days(41));
  assert.deepEqual(statuses(third), ['retiring', 'current', 'next']);
  assert.equal(third.keys[0]?.kid, first.keys[1]?.kid);
  assert.equal(parse(third, days(41)).length, 3);
});

test('a set without a next key is not rotated', async () => {
  const { keys } = rotateKeys(undefined, NOW);
  assert.throws(() => rotateKeys({ keys: keys.slice(0, 1) }, NOW), SigningKeysError);
});

const { keys } = rotateKeys(undefined, NOW);
const [current, next] = keys as [(typeof keys)[0], (typeof keys)[0]];
const FAULTS: [string, unknown][] = [
  ['no JWK Set', [current]],
  ['no keys', { keys: [] }],
  ['a key that is null', { keys: [null] }],
  ['no current key', { keys: [next] }],
  ['two current keys', { keys: [current, { ...next, status: 'current' }] }],
  ['a current key that is not valid yet', { keys: [{ ...current, validFrom: '2026-01-02' }] }],
  ['a current key that has ended', { keys: [{ ...current, validUntil: '2025-12-31' }] }],
  ['a kid given twice', { keys: [current, { ...next, kid: current.kid }] }],
  ['a public key', { keys: [{ ...current, d: undefined }] }],
  ['a key of another curve', { keys: [{ ...current, crv: 'P-384' }] }],
  ['a point that is not on the curve', { keys: [{ ...current, x: current.y }] }],
  ['a date that is none', { keys: [{ ...current, validFrom: 'soon' }] }],
  ['an unknown status', { keys: [{ ...current, status: 'former' }] }],
];

for (const [name, stored] of FAULTS) {
  test(`a key file with ${name}: a fault that shows no key`, async () => {
    assert.throws(
      () => parse(stored),
      (error) => error instanceof SigningKeysError && !error.message.includes(String(current.d)),
    );
  });
}

test('npm run keys makes the file with mode 0600, and rotates it', async (t) => {
  const directory = await mkdtemp(join(tmpdir(), 'speechgate-keys-'));
  t.teardown(() => rm(directory, { recursive: true, force: true }));
  const file = join(directory, 'keys.json');
  const run = () => startChild(t, 'src/cli/keys-command.ts', { SIGNING_KEYS_FILE: file });
  await run().printed(/Made .*\n +current .*\n.*\n.*\n +next /);
  assert.equal((await stat(file)).mode & 0o777, 0o600);
  const before = parseSigningKeys(await readFile(file, 'utf8'), new Date());
  await run().printed(/Rotated .*\n +retiring .*\n.*\n.*\n +current .*\n.*\n.*\n +next /);
  assert.equal((await stat(file)).mode & 0o777, 0o600);
  const after = parseSigningKeys(await readFile(file, 'utf8'), new Date());
  assert.equal(after.find(({ status }) => status === 'current')?.keyId, before[1]?.keyId);
});
