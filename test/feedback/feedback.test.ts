import { test } from 'tap';
import { recoverPersonalSigner } from '../../src/feedback/submit.ts';
import { plainWallet, viemWallet } from '../support/wallet.ts';

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
