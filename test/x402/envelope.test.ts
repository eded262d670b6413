import assert from 'node:assert/strict';
import fc from 'fast-check';
import { test } from 'tap';
import { decodeEnvelope, InvalidEnvelope } from '../../src/x402/envelope.ts';

const PAYER = `0x${'Aa'.repeat(20)}`;
const PAYEE = `0x${'bB'.repeat(20)}`;

const accepted = {
  scheme: 'exact',
  network: 'eip155:8453',
  amount: '198',
  asset: `0x${'11'.repeat(20)}`,
  payTo: PAYEE,
  maxTimeoutSeconds: 120,
  extra: { name: 'USD Coin', version: '2' },
};
const authorization = {
  from: PAYER,
  to: PAYEE,
  value: '198',
  validAfter: '0',
  validBefore: '1790000000',
  nonce: `0x${'Cc'.repeat(32)}`,
};
const signature = `0x${'12'.repeat(65)}`;
const extensions = { 'payment-identifier': { info: { required: true, id: 'pay_0123456789abcdef' } } };
const payment = { x402Version: 2, accepted, payload: { authorization, signature }, extensions };

const encode = (value: unknown) =>
  Buffer.from(typeof value === 'string' ? value : JSON.stringify(value)).toString('base64');
const withId = (id: unknown) => ({
  ...payment,
  extensions: { 'payment-identifier': { info: { required: true, id } } },
});
const withAuthorization = (change: object) => ({
  ...payment,
  payload: { signature, authorization: { ...authorization, ...change } },
});

test('R27: the header is read in standard, URL-safe and unpadded Base64', async () => {
  // The padding and both special characters have to occur.
  const value = { ...payment, extra: '>>>???ÿÿÿ', pad: 'x' };
  const standard = encode(value);
  const urlSafe = standard.replaceAll('+', '-').replaceAll('/', '_');
  assert.notEqual(urlSafe, standard);
  for (const header of [
    standard,
    urlSafe,
    standard.replaceAll('=', ''),
    urlSafe.replaceAll('=', ''),
    ` ${standard} `,
  ]) {
    const envelope = decodeEnvelope(header);
    assert.equal(envelope.identifier, 'pay_0123456789abcdef');
    assert.deepEqual(envelope.accepted, accepted);
    assert.deepEqual(envelope.authorization, {
      from: PAYER.toLowerCase(),
      to: PAYEE.toLowerCase(),
      value: 198n,
      validAfter: 0n,
      validBefore: 1790000000n,
      nonce: authorization.nonce.toLowerCase(),
    });
  }
});

test('R22: the identity of a payload does not depend on its spelling', async () => {
  const reordered = { extensions, payload: { signature, authorization }, accepted, x402Version: 2 };
  assert.equal(decodeEnvelope(encode(reordered)).canonical, decodeEnvelope(encode(payment)).canonical);
  assert.equal(
    decodeEnvelope(encode(JSON.stringify(payment, null, 2))).canonical,
    decodeEnvelope(encode(payment)).canonical,
  );
  assert.notEqual(decodeEnvelope(encode({ ...payment, more: 1 })).canonical, decodeEnvelope(encode(payment)).canonical);
});

const INVALID: [string, string][] = [
  ['nothing', ''],
  ['what is no Base64', '<script>'],
  ['Base64 of junk', encode('junk')],
  ['bytes that are no UTF-8', Buffer.from([0xff, 0xfe, 0x00]).toString('base64')],
  ['two payloads in one header', `${encode(payment)}, ${encode(payment)}`],
  ['null', encode('null')],
  ['a number', encode('402')],
  ['a string', encode('"payment"')],
  ['an array', encode([payment])],
  ['an empty object', encode({})],
  ['the v1 envelope', encode({ x402Version: 1, scheme: 'exact', network: 'base', payload: payment.payload })],
  ['version 2 with the members of v1', encode({ ...payment, accepted: undefined, scheme: 'exact', network: 'base' })],
  ['a version as text', encode({ ...payment, x402Version: '2' })],
  ['accepted as an array', encode({ ...payment, accepted: [accepted] })],
  ['accepted without a member', encode({ ...payment, accepted: { ...accepted, payTo: undefined } })],
  ['no payload', encode({ ...payment, payload: null })],
  ['a Permit2 payload', encode({ ...payment, payload: { signature, permit2Authorization: {} } })],
  [
    'a Permit2 payload beside an authorization',
    encode({ ...payment, payload: { signature, authorization, permit2Authorization: {} } }),
  ],
  ['no signature', encode({ ...payment, payload: { authorization } })],
  ['a short signature', encode({ ...payment, payload: { authorization, signature: '0x12' } })],
  ['no authorization', encode({ ...payment, payload: { signature } })],
  ['an authorization as an array', encode({ ...payment, payload: { signature, authorization: [] } })],
  ['a value as a number', encode(withAuthorization({ value: 198 }))],
  ['a negative value', encode(withAuthorization({ value: '-1' }))],
  ['a hexadecimal value', encode(withAuthorization({ value: '0xc6' }))],
  ['a value with a leading zero', encode(withAuthorization({ value: '0198' }))],
  ['a value beyond uint256', encode(withAuthorization({ value: String(2n ** 256n) }))],
  ['a short nonce', encode(withAuthorization({ nonce: '0xabcd' }))],
  ['a payer that is no address', encode(withAuthorization({ from: 'alice.eth' }))],
  ['no extensions', encode({ ...payment, extensions: undefined })],
  ['no identifier', encode({ ...payment, extensions: { 'payment-identifier': { info: { required: true } } } })],
  ['an identifier of 15 characters', encode(withId('x'.repeat(15)))],
  ['an identifier of 129 characters', encode(withId('x'.repeat(129)))],
  ['an identifier with a space', encode(withId('pay 0123456789abcdef'))],
  ['an identifier that is a list', encode(withId(['pay_0123456789abcdef']))],
  ['60 KB', encode({ ...payment, padding: 'x'.repeat(45_000) })],
  ['deep nesting', encode(`{"x402Version":2,"accepted":${'['.repeat(5000)}${']'.repeat(5000)}}`)],
  ['a number that is none', encode(JSON.stringify(payment).replace('"120"', '1e999').replace('120', '1e999'))],
];

for (const [name, header] of INVALID) {
  test(`${name}: INVALID_PAYMENT_PAYLOAD`, async () => {
    assert.throws(() => decodeEnvelope(header), InvalidEnvelope);
  });
}

test('a schema that the client sends is never compiled', async () => {
  const schema = { pattern: '^(a+)+$', $ref: 'http://127.0.0.1:1/schema', properties: { id: { pattern: '(' } } };
  const hostile = { 'payment-identifier': { ...extensions['payment-identifier'], schema } };
  assert.equal(decodeEnvelope(encode({ ...payment, extensions: hostile })).identifier, 'pay_0123456789abcdef');
});

test('whatever the header holds, it is read or refused, and nothing else is thrown', async () => {
  const header = fc.oneof(
    fc.string(),
    fc.base64String(),
    fc.json().map(encode),
    fc.record({ x402Version: fc.constant(2), accepted: fc.anything(), payload: fc.anything() }).map((value) => {
      try {
        return encode(value);
      } catch {
        return '';
      }
    }),
  );
  fc.assert(
    fc.property(header, (text) => {
      try {
        decodeEnvelope(text);
      } catch (error) {
        assert.ok(error instanceof InvalidEnvelope, String(error));
      }
    }),
    { numRuns: 500 },
  );
});
