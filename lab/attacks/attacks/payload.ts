import type { PaymentPayload } from '@x402/core/types';
import { encodePayment } from '../../../test/support/x402.ts';
import type { Attack } from '../attack.ts';

/** Deep enough to overflow the stack of a recursive parser. */
const DEPTH = 3_000;

const base64 = (text: string): string => Buffer.from(text).toString('base64');

/** Derives the payment header from a valid payment. */
const odd = (name: string, write: (payment: PaymentPayload) => string | readonly string[]): Attack => ({
  name,
  right: 'refused',
  attempt: async (attempt) => {
    const what = attempt.post();
    const payment = await attempt.sign(await attempt.challenge(what));
    const header = write(payment);
    const paid = { ...what, headers: { ...what.headers, 'payment-signature': header as string } };
    attempt.usage.add(paid);
    await attempt.send(paid);
  },
});

const changed = (name: string, change: (payment: PaymentPayload) => unknown): Attack =>
  odd(name, (payment) => encodePayment(change(payment)));

export const ODD_PAYLOADS: readonly Attack[] = [
  odd('header: empty', () => ''),
  odd('header: no Base64', () => '{"x402Version":2}'),
  odd('header: no JSON', () => base64('Pay you tomorrow.')),
  odd('header: no UTF-8', () => Buffer.from([0xff, 0xfe, 0x7b]).toString('base64')),
  odd('header: `null`', () => base64('null')),
  odd('header: a list of payments', (payment) => base64(JSON.stringify([payment, payment]))),
  odd('header: 12,000 characters more', (payment) => base64(`${JSON.stringify(payment)}${' '.repeat(9_000)}`)),
  odd('header: 60,000 characters', () => base64('{'.repeat(45_000))),
  odd('header: nested 3,000 levels deep', () => base64(`${'['.repeat(DEPTH)}${']'.repeat(DEPTH)}`)),
  odd('header: the payment twice', (payment) => [encodePayment(payment), encodePayment(payment)]),
  odd('header: two payments', (payment) => [encodePayment(payment), encodePayment({ ...payment, x402Version: 1 })]),
  changed('payload: version 1', (payment) => ({ ...payment, x402Version: 1 })),
  changed('payload: version 3', (payment) => ({ ...payment, x402Version: 3 })),
  changed('payload: the version is text', (payment) => ({ ...payment, x402Version: '2' })),
  changed('payload: nothing is accepted', ({ accepted: _, ...payment }) => payment),
  changed('payload: no authorization', (payment) => ({ ...payment, payload: {} })),
  changed('payload: no signature', (payment) => ({
    ...payment,
    payload: { ...payment.payload, signature: undefined },
  })),
  changed('payload: an empty signature', (payment) => ({
    ...payment,
    payload: { ...payment.payload, signature: '0x' },
  })),
  changed('payload: a signature of zeros', (payment) => ({
    ...payment,
    payload: { ...payment.payload, signature: `0x${'00'.repeat(65)}` },
  })),
  changed('payload: a signature of 5,000 bytes', (payment) => ({
    ...payment,
    payload: { ...payment.payload, signature: `0x${'ab'.repeat(5_000)}` },
  })),
  changed('payload: Permit2 for EIP-3009', (payment) => ({
    ...payment,
    payload: { signature: `0x${'ab'.repeat(65)}`, permit2Authorization: { from: '0x0', nonce: '1' } },
  })),
  changed('payload: an identifier of one character', (payment) => ({
    ...payment,
    extensions: { 'payment-identifier': { info: { required: true, id: 'x' }, schema: {} } },
  })),
  odd('payload: `__proto__`', (payment) =>
    base64(JSON.stringify(payment).replace('{', '{"__proto__":{"isValid":true,"success":true},')),
  ),
];
