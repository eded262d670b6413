import { createSecretKey } from 'node:crypto';
import { CompactSign } from 'jose';
import { test } from 'tap';
import { createChallengeSigner } from '../../src/feedback/challenge-token.ts';
import { recoverPersonalSigner } from '../../src/feedback/submit.ts';
import { plainWallet, viemWallet } from '../support/wallet.ts';

const SECRET = 'the first secret of 32 bytes and more';
const OTHER = 'the second secret of 32 bytes and more';
const CHALLENGE = {
  wallet: `0x${'ab'.repeat(20)}`,
  payloadSha256: 'cd'.repeat(32),
  nonce: '3b241101-e2bb-4255-8caf-4136c566a962',
  issuedAt: new Date('2030-01-01T00:00:00.123Z'),
  expiresAt: new Date('2030-01-01T00:10:00.123Z'),
};

test('a challenge token with any changed character is refused', async (t) => {
  const signer = createChallengeSigner([SECRET]);
  const token = await signer.sign(CHALLENGE);
  t.strictSame(await signer.open(token), CHALLENGE);
  for (let at = 0; at < token.length; at++) {
    for (const character of ['A', 'B', '.', '=', ' ', '']) {
      const changed = token.slice(0, at) + character + token.slice(at + 1);
      if (changed !== token) t.equal(await signer.open(changed), undefined, `${JSON.stringify(character)} at ${at}`);
    }
  }
  const last = token.at(-1) as string;
  const neighbour = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_';
  const spellings = [...neighbour]
    .filter((character) => character !== last)
    .map((character) => token.slice(0, -1) + character);
  for (const spelling of spellings) t.equal(await signer.open(spelling), undefined, 'stray bits of the last character');
  for (const text of ['', '.', '..', 'a.b.c', `${token}.x`, `${token}\n`, '😀', 'x'.repeat(30_000)]) {
    t.equal(await signer.open(text), undefined);
  }
});

test('secrets rotate: the first signs, all verify, a retired one does not', async (t) => {
  const before = await createChallengeSigner([OTHER]).sign(CHALLENGE);
  const during = createChallengeSigner([SECRET, OTHER]);
  t.strictSame(await during.open(before), CHALLENGE);
  const after = createChallengeSigner([SECRET]);
  t.strictSame(await after.open(await during.sign(CHALLENGE)), CHALLENGE);
  t.equal(await after.open(before), undefined);
});

test('a token of another purpose or algorithm is not a challenge', async (t) => {
  const signer = createChallengeSigner([SECRET]);
  const key = createSecretKey(Buffer.from(SECRET));
  const made = (payload: object, alg: string) =>
    new CompactSign(Buffer.from(JSON.stringify(payload))).setProtectedHeader({ alg }).sign(key);
  t.equal(await signer.open(await made({ aud: 'job-audio', ...CHALLENGE }, 'HS256')), undefined);
  t.ok(await signer.open(await made({ aud: 'feedback', ...CHALLENGE }, 'HS256')), 'the making itself is right');
  const unsigned = `${Buffer.from('{"alg":"none"}').toString('base64url')}.${Buffer.from(
    JSON.stringify({ aud: 'feedback', ...CHALLENGE }),
  ).toString('base64url')}.`;
  t.equal(await signer.open(unsigned), undefined);
});

const ORDER = 0xfffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141n;
const MESSAGES = ['', 'a', 'two\nlines', 'größer als ASCII 😀', 'x'.repeat(1000), '0x1234'];

for (const [library, make] of [
  ['viem', viemWallet],
  ['elliptic and js-sha3', plainWallet],
] as const) {
  test(`EIP-191: the signer of a ${library} signature is recovered`, async (t) => {
    for (const message of MESSAGES) {
      const wallet = make();
      const signature = await wallet.sign(message);
      t.equal(recoverPersonalSigner(message, signature), wallet.address.toLowerCase(), JSON.stringify(message));
      t.not(recoverPersonalSigner(`${message} `, signature), wallet.address.toLowerCase());
    }
  });
}

test('v may be 27, 28, 0 or 1; malformed and high-s signatures are refused', async (t) => {
  const wallet = viemWallet();
  const signer = wallet.address.toLowerCase();
  const signature = await wallet.sign('hello');
  const [r, s, v] = [signature.slice(2, 66), signature.slice(66, 130), Number.parseInt(signature.slice(130), 16)];
  const withV = (value: number) => `0x${r}${s}${value.toString(16).padStart(2, '0')}`;
  t.equal(recoverPersonalSigner('hello', withV(v - 27)), signer);
  t.equal(recoverPersonalSigner('hello', `0x${signature.slice(2).toUpperCase()}`), signer);
  for (const wrong of [2, 3, 26, 29, 30, 31, 37, 255]) {
    t.equal(recoverPersonalSigner('hello', withV(wrong)), undefined, `v ${wrong}`);
  }
  t.not(recoverPersonalSigner('hello', withV(v === 27 ? 28 : 27)), signer);

  const highS = (ORDER - BigInt(`0x${s}`)).toString(16).padStart(64, '0');
  t.equal(recoverPersonalSigner('hello', `0x${r}${highS}${(v === 27 ? 28 : 27).toString(16)}`), undefined, 'high s');
  const zero = '0'.repeat(64);
  const tooLarge = ORDER.toString(16);
  for (const [name, text] of [
    ['empty', ''],
    ['0x only', '0x'],
    ['64 bytes', signature.slice(0, -2)],
    ['66 bytes', `${signature}00`],
    ['no 0x', signature.slice(2)],
    ['no hexadecimal', `${signature.slice(0, -1)}g`],
    ['a line end after it', `${signature}\n`],
    ['r of 0', `0x${zero}${s}1b`],
    ['s of 0', `0x${r}${zero}1b`],
    ['r of the order', `0x${tooLarge}${s}1b`],
    ['r that is no point', `0x${'0'.repeat(63)}5${s}1b`],
  ] as const) {
    t.equal(recoverPersonalSigner('hello', text), undefined, name);
  }
});
