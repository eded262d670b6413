import { sql } from 'kysely';
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
import { type Authorization, testChain, wallet } from '../support/chain.ts';
import {
  assertCredited,
  assertUntouched,
  DEPOSIT,
  DEPOSIT_PATH,
  depositOf,
  mineSteadily,
  payDeposit,
  paymentStates,
  signDeposit,
  signedOf,
  told,
  withTerms,
} from '../support/deposit.ts';
import { VERIFY_FAULTS } from '../support/facilitator-faults.ts';
import { startTcpProxy } from '../support/tcp-proxy.ts';
import { decodeHeader, startX402Gateway, withPayment } from '../support/x402.ts';

const { chain, skip } = await testChain();

const NOBODY = 'http://127.0.0.1:1';

test('R23: a deposit that accepts a modified offer is 402 with a fresh challenge', { skip }, async (t) => {
  const gateway = await startX402Gateway(t, chain);
  const payer = await wallet(chain.client, 1_000_000n);
  const payload = await signDeposit(gateway, payer);
  const { accepted } = payload;
  const changes: [number, object][] = [
    [DEPOSIT + 1, {}],
    [DEPOSIT, { amount: String(DEPOSIT - 1) }],
    [DEPOSIT, { payTo: payer.address }],
    [DEPOSIT, { asset: gateway.payTo }],
    [DEPOSIT, { network: 'eip155:1' }],
    [DEPOSIT, { maxTimeoutSeconds: 3600 }],
    [DEPOSIT, { extra: { ...accepted.extra, assetTransferMethod: 'permit2' } }],
  ];
  for (const [amount, change] of changes) {
    const call = withPayment(depositOf(amount), { ...payload, accepted: { ...accepted, ...change } });
    const reply = await gateway.call(DEPOSIT_PATH, call);
    t.strictSame(told(reply), [402, 'PAYMENT_REQUIRED']);
    const challenge = decodeHeader(reply.headers.get('payment-required'));
    t.strictSame(
      [challenge.error, challenge.accepts[0].amount, challenge.accepts[0].payTo],
      ['accepted_is_no_offer', String(amount), gateway.payTo],
    );
  }
  await assertUntouched(gateway);
});

test('R28: a deposit with a wrong payee, amount or time is 402 before any call', { skip }, async (t) => {
  const gateway = await startX402Gateway(t, chain);
  const payer = await wallet(chain.client, 1_000_000n);
  const payload = await signDeposit(gateway, payer);
  const now = BigInt(Math.floor(Date.now() / 1000));
  const terms: [Partial<Authorization>, string][] = [
    [{ to: payer.address }, 'authorization_to_another_payee'],
    [{ value: BigInt(DEPOSIT) - 1n }, 'authorization_of_another_amount'],
    [{ value: BigInt(DEPOSIT) + 1n }, 'authorization_of_another_amount'],
    [{ validBefore: now + 10n }, 'authorization_expires_too_soon'],
    [{ validBefore: now + 300n }, 'authorization_valid_for_too_long'],
    [{ validBefore: 2n ** 256n - 1n }, 'authorization_valid_for_too_long'],
    [{ validAfter: now + 60n }, 'authorization_not_yet_valid'],
  ];
  for (const [changed, reason] of terms) {
    const call = withPayment(depositOf(DEPOSIT), await withTerms(payer, payload, changed));
    const reply = await gateway.call(DEPOSIT_PATH, call);
    t.strictSame(told(reply), [402, 'PAYMENT_REQUIRED']);
    t.equal(decodeHeader(reply.headers.get('payment-required')).error, reason);
  }
  await assertUntouched(gateway);
});

test('a failed verify releases the deposit, and the same payment succeeds later', { skip }, async (t) => {
  const gateway = await startX402Gateway(t, chain);
  const payer = await wallet(chain.client, 1_000_000n);
  const paid = withPayment(depositOf(DEPOSIT), await signDeposit(gateway, payer));
  for (const [name, fault, status, code] of VERIFY_FAULTS) {
    gateway.facilitator.faults.verify(fault);
    const reply = await gateway.call(DEPOSIT_PATH, paid);
    t.strictSame(told(reply), [status, code], name);
    t.strictSame(await paymentStates(gateway), [], name);
    if (status === 402) {
      t.equal(decodeHeader(reply.headers.get('payment-required')).error, 'invalid_exact_evm_signature');
    }
  }
  t.equal(gateway.facilitator.broadcasts.length, 0);
  mineSteadily(t, chain);
  t.strictSame(told(await gateway.call(DEPOSIT_PATH, paid)), [200, DEPOSIT, false]);
  await assertCredited(gateway, payer, [DEPOSIT]);
});

test('R24: an unreachable facilitator or chain is 502, and the deposit can be retried', { skip }, async (t) => {
  const node = await startTcpProxy(t, chain.rpcUrl);
  const gateway = await startX402Gateway(t, chain, { X402_RPC_URL: node.url });
  const payer = await wallet(chain.client, 1_000_000n);
  const lost = await startX402Gateway(t, chain, { X402_FACILITATOR_URL: NOBODY });
  t.strictSame(told((await payDeposit(lost, payer)).reply), [502, 'PAYMENT_ERROR']);
  t.strictSame(await paymentStates(lost), []);

  node.cut();
  const { reply, paid } = await payDeposit(gateway, payer);
  t.strictSame(told(reply), [502, 'PAYMENT_ERROR']);
  await assertUntouched(gateway);
  node.restore();
  mineSteadily(t, chain);
  t.strictSame(told(await gateway.call(DEPOSIT_PATH, paid)), [200, DEPOSIT, false]);
  await assertCredited(gateway, payer, [DEPOSIT]);
});

test('R26: an identical deposit takes over a reservation whose lease has expired', { skip }, async (t) => {
  const gateway = await startX402Gateway(t, chain);
  const payer = await wallet(chain.client, 1_000_000n);
  const payload = await signDeposit(gateway, payer);
  const paid = withPayment(depositOf(DEPOSIT), payload);
  // As if the process had died before it released what could not be verified.
  await sql`create function lose() returns trigger language plpgsql as 'begin return null; end'`.execute(gateway.db);
  await sql`create trigger lose before delete on x402_payment for each row execute function lose()`.execute(gateway.db);
  gateway.facilitator.faults.verify('error');
  t.strictSame(told(await gateway.call(DEPOSIT_PATH, paid)), [409, 'PAYMENT_REPLAY_PENDING']);
  t.strictSame(await paymentStates(gateway), ['reserved']);
  await sql`drop trigger lose on x402_payment`.execute(gateway.db);

  const lease = (interval: string) =>
    sql`update x402_payment set lease_until = now() + ${interval}::interval`.execute(gateway.db);
  await lease('5 seconds');
  t.strictSame(told(await gateway.call(DEPOSIT_PATH, paid)), [409, 'PAYMENT_REPLAY_PENDING']);
  await lease('-1 second');
  const fresh = await signDeposit(gateway, payer);
  for (const misuse of [
    withPayment(depositOf(DEPOSIT), { ...fresh, payload: payload.payload }),
    withPayment(depositOf(DEPOSIT), { ...payload, payload: fresh.payload }),
  ]) {
    t.strictSame(told(await gateway.call(DEPOSIT_PATH, misuse)), [409, 'PAYMENT_IDENTIFIER_CONFLICT']);
  }
  mineSteadily(t, chain);
  t.strictSame(told(await gateway.call(DEPOSIT_PATH, paid)), [200, DEPOSIT, false]);
  await assertCredited(gateway, payer, [DEPOSIT]);
});

const signedText = (payload: { payload: Record<string, unknown> }) => payload.payload.authorization as object;
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
    t.strictSame(told(reply), [400, 'INVALID_PAYMENT_PAYLOAD'], name);
    t.equal(reply.json.error.details.field, 'payload.signature', name);
  }
  await assertUntouched(gateway);
  const control = await gateway.call(DEPOSIT_PATH, withPayment(depositOf(DEPOSIT), good));
  t.strictSame(told(control), [502, 'PAYMENT_ERROR']);
  await assertUntouched(gateway);
});
