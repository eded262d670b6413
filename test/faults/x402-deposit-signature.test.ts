import { test } from 'tap';
import {
  concatHex,
  type Hex,
  type LocalAccount,
  numberToHex,
  parseSignature,
  serializeCompactSignature,
  signatureToCompactSignature,
} from 'viem';
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts';
import { testChain, wallet } from '../support/chain.ts';
import {
  assertUntouched,
  DEPOSIT,
  DEPOSIT_PATH,
  depositOf,
  signDeposit,
  signedOf,
  told,
  withTerms,
} from '../support/deposit.ts';
import { startX402Gateway, withPayment } from '../support/x402.ts';

const { chain, skip } = await testChain();

const NOBODY = 'http://127.0.0.1:1';
const ORDER = 0xfffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141n;
const stranger = (): LocalAccount => privateKeyToAccount(generatePrivateKey());

/** The second spelling of a signature, that a token without the rule against it would take too. */
function highS(signature: Hex): Hex {
  const { r, s, yParity } = parseSignature(signature);
  return concatHex([r, numberToHex(ORDER - BigInt(s), { size: 32 }), yParity === 0 ? '0x1c' : '0x1b']);
}

const withV = (signature: Hex, v: number): Hex =>
  concatHex([signature.slice(0, 130) as Hex, numberToHex(v, { size: 1 })]);
const compact = (signature: Hex): Hex =>
  serializeCompactSignature(signatureToCompactSignature(parseSignature(signature)));
/** As ERC-6492 wraps the signature of a contract that is not deployed yet. */
const wrapped = (signature: Hex): Hex =>
  concatHex(['0x', numberToHex(1, { size: 32 }), signature, '0x'.padEnd(66, '6492') as Hex]);

const SIGNATURES: [string, (signature: Hex) => Hex][] = [
  ['of a smart account: one byte longer', (signature) => `${signature}00`],
  ['of a smart account: two signatures', (signature) => concatHex([signature, signature])],
  ['of a smart account that is not deployed (ERC-6492)', wrapped],
  ['with s in the upper half', highS],
  ['of 64 bytes (ERC-2098)', compact],
  ['with v 29', (signature) => withV(signature, 29)],
  ['with v 2', (signature) => withV(signature, 2)],
  ['with v 255', (signature) => withV(signature, 255)],
  ['with the other v', (signature) => withV(signature, signature.endsWith('1b') ? 28 : 27)],
  ['of zeros', () => `0x${'00'.repeat(65)}`],
  [
    'with r that is on no curve',
    (signature) => concatHex([numberToHex(ORDER, { size: 32 }), `0x${signature.slice(66)}`]),
  ],
  ['that is none', () => '0x'],
];

test('R35: a deposit that its payer did not sign is refused before any call', { skip }, async (t) => {
  // The chain is not there: a gateway that asked it would answer 502.
  const gateway = await startX402Gateway(t, chain, { X402_RPC_URL: NOBODY });
  const payer = await wallet(chain.client, 1_000_000n);
  const good = await signDeposit(gateway, payer);
  const others: [string, object][] = [
    ['of another wallet', await withTerms(stranger(), good, { from: payer.address })],
    [
      'for another payer',
      { ...good, payload: { ...good.payload, authorization: { ...signedText(good), from: stranger().address } } },
    ],
    [
      'for other terms',
      { ...good, payload: { ...good.payload, authorization: { ...signedText(good), validAfter: '1' } } },
    ],
  ];
  for (const [name, change] of SIGNATURES) {
    const signature = change(signedOf(good).signature);
    others.push([name, { ...good, payload: { ...good.payload, signature } }]);
  }
  for (const [name, payload] of others) {
    const reply = await gateway.call(DEPOSIT_PATH, withPayment(depositOf(DEPOSIT), payload));
    t.strictSame([reply.status, reply.json.error.code], [400, 'INVALID_PAYMENT_PAYLOAD'], name);
    t.equal(reply.json.error.details.field, 'payload.signature', name);
  }
  await assertUntouched(gateway);
  const control = await gateway.call(DEPOSIT_PATH, withPayment(depositOf(DEPOSIT), good));
  t.strictSame(told(control), [502, 'PAYMENT_ERROR']);
  await assertUntouched(gateway);
});

const signedText = (payload: { payload: Record<string, unknown> }) => payload.payload.authorization as object;

test('R22: a payload with Permit2 or without an identifier is refused before any call', { skip }, async (t) => {
  const gateway = await startX402Gateway(t, chain, { X402_RPC_URL: NOBODY });
  const payload = await signDeposit(gateway, await wallet(chain.client, 1_000_000n));
  const { authorization, signature } = payload.payload;
  for (const wrong of [
    'junk',
    { ...payload, extensions: undefined },
    { ...payload, x402Version: 1 },
    { ...payload, payload: { signature, permit2Authorization: authorization } },
    { ...payload, payload: { ...payload.payload, permit2Authorization: authorization } },
  ]) {
    const reply = await gateway.call(DEPOSIT_PATH, withPayment(depositOf(DEPOSIT), wrong));
    t.strictSame(told(reply), [400, 'INVALID_PAYMENT_PAYLOAD']);
  }
  await assertUntouched(gateway);
});
