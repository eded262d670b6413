import assert from 'node:assert/strict';
import { test } from 'tap';
import { recoverPersonalSigner } from '../../src/feedback/personal-sign.ts';
import { plainWallet, viemWallet } from '../support/wallet.ts';

const ORDER = 0xfffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141n;
const MESSAGES = ['', 'a', 'two\nlines', 'größer als ASCII 😀', 'x'.repeat(1000), '0x1234'];

for (const [library, make] of [
  ['viem', viemWallet],
  ['elliptic and js-sha3', plainWallet],
] as const) {
  test(`EIP-191: the signer is recovered from what ${library} signed`, async () => {
    for (const message of MESSAGES) {
      const wallet = make();
      const signature = await wallet.sign(message);
      assert.equal(recoverPersonalSigner(message, signature), wallet.address.toLowerCase(), JSON.stringify(message));
      assert.notEqual(recoverPersonalSigner(`${message} `, signature), wallet.address.toLowerCase());
    }
  });
}

test('v is 27 or 28, or 0 or 1; a high s, another length and what is no hexadecimal are no signature', async () => {
  const wallet = viemWallet();
  const signer = wallet.address.toLowerCase();
  const signature = await wallet.sign('hello');
  const [r, s, v] = [signature.slice(2, 66), signature.slice(66, 130), Number.parseInt(signature.slice(130), 16)];
  const withV = (value: number) => `0x${r}${s}${value.toString(16).padStart(2, '0')}`;
  assert.equal(recoverPersonalSigner('hello', withV(v - 27)), signer);
  assert.equal(recoverPersonalSigner('hello', `0x${signature.slice(2).toUpperCase()}`), signer);
  for (const wrong of [2, 3, 26, 29, 30, 31, 37, 255]) {
    assert.equal(recoverPersonalSigner('hello', withV(wrong)), undefined, `v ${wrong}`);
  }
  assert.notEqual(recoverPersonalSigner('hello', withV(v === 27 ? 28 : 27)), signer);

  const highS = (ORDER - BigInt(`0x${s}`)).toString(16).padStart(64, '0');
  assert.equal(
    recoverPersonalSigner('hello', `0x${r}${highS}${(v === 27 ? 28 : 27).toString(16)}`),
    undefined,
    'high s',
  );
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
    assert.equal(recoverPersonalSigner('hello', text), undefined, name);
  }
});
