import assert from 'node:assert/strict';
import { PaymentPayloadV2Schema, PaymentRequiredV2Schema } from '@x402/core/schemas';
import {
  sanitizeResourceServiceMetadata,
  validateDiscoveryExtension,
  validateDiscoveryExtensionSpec,
} from '@x402/extensions/bazaar';
import { declarePaymentIdentifierExtension } from '@x402/extensions/payment-identifier';
import fc from 'fast-check';
import { test } from 'tap';
import { currentPayee, PayeeError, parsePayees, payablePayees } from '../../../src/config/payees.ts';
import {
  ChallengeTemplate,
  depositResource,
  encodeHeader,
  makeChallenge,
  makeOffer,
  speechResource,
} from '../../../src/payments/x402/challenge.ts';
import { decodeEnvelope, InvalidEnvelope } from '../../../src/payments/x402/envelope.ts';
import { isExpired, Quotes, textSha256 } from '../../../src/payments/x402/quotes.ts';

const asset = {
  network: 'eip155:8453',
  chainId: 8453,
  address: '0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913',
  name: 'USD Coin',
  version: '2',
} as const;
const PAYEE = '0xcA11bde05977b3631167028862bE2a173976CA11';

const SERVICE = ['https://speech.example', 'speechgate'] as const;

for (const [name, resource, path] of [
  ['GET /x402/tts', speechResource(...SERVICE, 'GET'), '/x402/tts'],
  ['POST /x402/tts', speechResource(...SERVICE, 'POST'), '/x402/tts'],
  ['POST /x402/deposit', depositResource(...SERVICE), '/x402/deposit'],
] as const) {
  const challenge = makeChallenge(resource, makeOffer(asset, 198n, PAYEE), 'payment_required');

  test(`R27: the challenge of ${name} is x402 version 2 with the exact amount`, async (t) => {
    t.strictSame(PaymentRequiredV2Schema.parse(challenge), challenge);
    t.equal(challenge.resource.url, `https://speech.example${path}`);
    t.strictSame(challenge.accepts, [
      {
        scheme: 'exact',
        network: 'eip155:8453',
        amount: '198',
        asset: asset.address,
        payTo: PAYEE,
        maxTimeoutSeconds: 120,
        extra: { name: 'USD Coin', version: '2' },
      },
    ]);
    t.strictSame(JSON.parse(Buffer.from(encodeHeader(challenge), 'base64').toString()), challenge);
  });

  test(`R27: the extensions of ${name} pass the official validators`, async (t) => {
    const { bazaar, 'payment-identifier': identifier } = challenge.extensions;
    t.strictSame(validateDiscoveryExtension(bazaar as never), { valid: true });
    t.strictSame(validateDiscoveryExtensionSpec(bazaar as never), { valid: true });
    t.strictSame(identifier, declarePaymentIdentifierExtension(true));
    const { serviceName, tags } = challenge.resource;
    t.strictSame(sanitizeResourceServiceMetadata({ url: challenge.resource.url, serviceName, tags: [...tags] }), {
      serviceName,
      tags,
    });
  });
}

test('R27: a challenge from the template equals the challenge made for its amount', async () => {
  const anything = fc.record({
    serviceName: fc.string({ unit: 'grapheme' }),
    amount: fc.bigInt({ min: 1n, max: 10n ** 12n }),
  });
  fc.assert(
    fc.property(anything, ({ serviceName, amount }) => {
      const resource = speechResource('https://speech.example', serviceName, 'POST');
      const make = (digits: string) =>
        makeChallenge(resource, { ...makeOffer(asset, 1n, PAYEE), amount: digits }, 'unpaid');
      const enclose = (challenge: object) => ({ error: { details: challenge }, ...challenge });
      const { header, body } = new ChallengeTemplate(make, enclose).write(String(amount));
      assert.equal(header, encodeHeader(make(String(amount))));
      assert.equal(body, JSON.stringify(enclose(make(String(amount)))));
    }),
    { numRuns: 300 },
  );
});

const A = '0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913';
const B = '0xcA11bde05977b3631167028862bE2a173976CA11';
const C = '0x4200000000000000000000000000000000000006';

test('payees have statuses and dates, and retiring ones are payable until their end', async (t) => {
  const payees = parsePayees(`${A}:current:2026-01-01, ${B}:retiring::2026-03-01,${C}:next:2026-06-01`);
  t.equal(currentPayee(payees).address, A);
  t.equal(payees[0]?.validFrom?.toISOString(), '2026-01-01T00:00:00.000Z');
  const payable = (date: string) => payablePayees(payees, new Date(date)).map(({ address }) => address);
  t.strictSame(payable('2026-02-28T23:59:59Z'), [A, B]);
  t.strictSame(payable('2026-03-01T00:00:00Z'), [A]);
});

const FAULTS: [string, string][] = [
  ['an invalid address', 'alice.eth'],
  ['an empty entry', `${A},`],
  ['a wrong checksum', A.replace('fCD6', 'fcD6')],
  ['an unknown status', `${A}:former`],
  ['an invalid date', `${A}:current:2026-02-30`],
  ['a date in another format', `${A}:current:01/02/2026`],
  ['an end before its start', `${A}:current:2026-02-01:2026-01-01`],
  ['an address twice', `${A},${A.toLowerCase()}:next`],
  ['two current payees', `${A},${B}`],
  ['no current payee', `${A}:next`],
  ['more than four parts', `${A}:current:::`],
];

test('malformed or contradictory payees throw a PayeeError', async () => {
  for (const [name, setting] of FAULTS) assert.throws(() => parsePayees(setting), PayeeError, name);
});

const NEW = 'new-secret-new-secret-new-secret-new';
const TERMS = {
  textLength: 11,
  textSha256: textSha256('Hello world'),
  model: 'provider-a/tts-1',
  voice: 'provider-a_alloy',
  speed: 1.25,
  amountMicroUsd: 198n,
  network: 'eip155:8453',
  payTo: '0xcA11bde05977b3631167028862bE2a173976CA11',
} as const;

test('a quote token holds its terms until it expires', async (t) => {
  const quotes = new Quotes([NEW], 300);
  const { quote, token } = await quotes.issue(TERMS);
  t.ok(token.length <= 4096);
  t.strictSame(await quotes.read(token), quote);
  t.equal(quote.expiresAt, quote.issuedAt + 300);
  t.equal(isExpired(quote, quote.expiresAt * 1000 - 1), false);
  t.equal(isExpired(quote, quote.expiresAt * 1000), true);
});

const PAYER = `0x${'Aa'.repeat(20)}`;
const RECEIVER = `0x${'bB'.repeat(20)}`;

const accepted = {
  scheme: 'exact',
  network: 'eip155:8453',
  amount: '198',
  asset: `0x${'11'.repeat(20)}`,
  payTo: RECEIVER,
  maxTimeoutSeconds: 120,
  extra: { name: 'USD Coin', version: '2' },
};
const authorization = {
  from: PAYER,
  to: RECEIVER,
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

test('R22: the identity of a payload does not depend on its formatting', async (t) => {
  const reordered = { extensions, payload: { signature, authorization }, accepted, x402Version: 2 };
  t.equal(decodeEnvelope(encode(reordered)).canonical, decodeEnvelope(encode(payment)).canonical);
  t.equal(
    decodeEnvelope(encode(JSON.stringify(payment, null, 2))).canonical,
    decodeEnvelope(encode(payment)).canonical,
  );
  t.not(decodeEnvelope(encode({ ...payment, more: 1 })).canonical, decodeEnvelope(encode(payment)).canonical);
});

const INVALID: [string, string][] = [
  ['an empty header', ''],
  ['invalid Base64', '<script>'],
  ['Base64 of junk', encode('junk')],
  ['invalid UTF-8', Buffer.from([0xff, 0xfe, 0x00]).toString('base64')],
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
  ['a missing payload', encode({ ...payment, payload: null })],
  ['a Permit2 payload', encode({ ...payment, payload: { signature, permit2Authorization: {} } })],
  [
    'a Permit2 payload beside an authorization',
    encode({ ...payment, payload: { signature, authorization, permit2Authorization: {} } }),
  ],
  ['a missing signature', encode({ ...payment, payload: { authorization } })],
  ['a short signature', encode({ ...payment, payload: { authorization, signature: '0x12' } })],
  ['a missing authorization', encode({ ...payment, payload: { signature } })],
  ['an authorization as an array', encode({ ...payment, payload: { signature, authorization: [] } })],
  ['a value as a number', encode(withAuthorization({ value: 198 }))],
  ['a negative value', encode(withAuthorization({ value: '-1' }))],
  ['a hexadecimal value', encode(withAuthorization({ value: '0xc6' }))],
  ['a value with a leading zero', encode(withAuthorization({ value: '0198' }))],
  ['a value beyond uint256', encode(withAuthorization({ value: String(2n ** 256n) }))],
  ['a short nonce', encode(withAuthorization({ nonce: '0xabcd' }))],
  ['a payer that is not an address', encode(withAuthorization({ from: 'alice.eth' }))],
  ['a payment without extensions', encode({ ...payment, extensions: undefined })],
  ['a missing identifier', encode({ ...payment, extensions: { 'payment-identifier': { info: { required: true } } } })],
  ['an identifier of 15 characters', encode(withId('x'.repeat(15)))],
  ['an identifier of 129 characters', encode(withId('x'.repeat(129)))],
  ['an identifier with a space', encode(withId('pay 0123456789abcdef'))],
  ['an identifier that is a list', encode(withId(['pay_0123456789abcdef']))],
  ['a header of 60 KB', encode({ ...payment, padding: 'x'.repeat(45_000) })],
  ['deep nesting', encode(`{"x402Version":2,"accepted":${'['.repeat(5000)}${']'.repeat(5000)}}`)],
  ['an infinite number', encode(JSON.stringify(payment).replace('"120"', '1e999').replace('120', '1e999'))],
];

test('R22: a malformed payload is refused', async () => {
  for (const [name, header] of INVALID) assert.throws(() => decodeEnvelope(header), InvalidEnvelope, name);
});

test('terms are read exactly when the schema of @x402/core accepts them', async (t) => {
  const resource = {
    url: 'https://speech.example',
    description: 'Speech',
    mimeType: 'audio/mpeg',
    serviceName: 'speechgate',
    tags: ['speech'],
    iconUrl: 'https://speech.example/icon',
  };
  const isRead = (payload: object) => {
    try {
      return decodeEnvelope(encode(payload)) !== undefined;
    } catch {
      return false;
    }
  };
  const texts = ['', 'ab', 'a:b', 'é:b', 'x'.repeat(33), 'x'.repeat(2049)];
  const values = [null, ...texts, 0, -1, 1.5, true, {}, [], ['ab'], ['é'], Array(6).fill('ab')];
  for (const [part, members] of Object.entries({ accepted: { ...accepted, extra: {} }, resource })) {
    for (const value of values) {
      const changed = [value, ...Object.keys(members).map((name) => ({ ...members, [name]: value }))];
      for (const [index, terms] of changed.entries()) {
        const payload = { ...payment, [part]: terms };
        const name = `${part} ${index} ${JSON.stringify(value).slice(0, 40)}`;
        t.equal(isRead(payload), PaymentPayloadV2Schema.safeParse(payload).success, name);
      }
    }
  }
});

test('any header is either read or refused, and nothing else is thrown', async () => {
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
