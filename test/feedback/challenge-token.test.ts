import assert from 'node:assert/strict';
import { createSecretKey } from 'node:crypto';
import { CompactSign } from 'jose';
import { test } from 'tap';
import { createChallengeSigner } from '../../src/feedback/challenge-token.ts';

const SECRET = 'the first secret of 32 bytes and more';
const OTHER = 'the second secret of 32 bytes and more';
const CHALLENGE = {
  wallet: `0x${'ab'.repeat(20)}`,
  payloadSha256: 'cd'.repeat(32),
  nonce: '3b241101-e2bb-4255-8caf-4136c566a962',
  issuedAt: new Date('2030-01-01T00:00:00.123Z'),
  expiresAt: new Date('2030-01-01T00:10:00.123Z'),
};

test('a token is the challenge, and no other text is: each change of one character is refused', async () => {
  const signer = createChallengeSigner([SECRET]);
  const token = await signer.sign(CHALLENGE);
  assert.deepEqual(await signer.open(token), CHALLENGE);
  for (let at = 0; at < token.length; at++) {
    for (const character of ['A', 'B', '.', '=', ' ', '']) {
      const changed = token.slice(0, at) + character + token.slice(at + 1);
      if (changed !== token)
        assert.equal(await signer.open(changed), undefined, `${JSON.stringify(character)} at ${at}`);
    }
  }
  const last = token.at(-1) as string;
  const neighbour = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_';
  const spellings = [...neighbour]
    .filter((character) => character !== last)
    .map((character) => token.slice(0, -1) + character);
  for (const spelling of spellings)
    assert.equal(await signer.open(spelling), undefined, 'stray bits of the last character');
  for (const text of ['', '.', '..', 'a.b.c', `${token}.x`, `${token}\n`, '😀', 'x'.repeat(30_000)]) {
    assert.equal(await signer.open(text), undefined);
  }
});

test('secrets rotate: the first signs, all verify, a retired one does not', async () => {
  const before = await createChallengeSigner([OTHER]).sign(CHALLENGE);
  const during = createChallengeSigner([SECRET, OTHER]);
  assert.deepEqual(await during.open(before), CHALLENGE);
  const after = createChallengeSigner([SECRET]);
  assert.deepEqual(await after.open(await during.sign(CHALLENGE)), CHALLENGE);
  assert.equal(await after.open(before), undefined);
});

test('what the same secret signed for another purpose, or with another algorithm, is no challenge', async () => {
  const signer = createChallengeSigner([SECRET]);
  const key = createSecretKey(Buffer.from(SECRET));
  const made = (payload: object, alg: string) =>
    new CompactSign(Buffer.from(JSON.stringify(payload))).setProtectedHeader({ alg }).sign(key);
  assert.equal(await signer.open(await made({ aud: 'job-audio', ...CHALLENGE }, 'HS256')), undefined);
  assert.ok(await signer.open(await made({ aud: 'feedback', ...CHALLENGE }, 'HS256')), 'the making itself is right');
  const unsigned = `${Buffer.from('{"alg":"none"}').toString('base64url')}.${Buffer.from(
    JSON.stringify({ aud: 'feedback', ...CHALLENGE }),
  ).toString('base64url')}.`;
  assert.equal(await signer.open(unsigned), undefined);
});
