import assert from 'node:assert/strict';
import { CompactSign } from 'jose';
import { test } from 'tap';
import { isExpired, Quotes, textSha256 } from '../../src/x402/quotes.ts';

const OLD = 'old-secret-old-secret-old-secret-old';
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

test('a token holds what it was issued for, until its end', async () => {
  const quotes = new Quotes([NEW], 300);
  const { quote, token } = await quotes.issue(TERMS);
  assert.ok(token.length <= 4096);
  assert.deepEqual(await quotes.read(token), quote);
  assert.equal(quote.expiresAt, quote.issuedAt + 300);
  assert.equal(isExpired(quote, quote.expiresAt * 1000 - 1), false);
  assert.equal(isExpired(quote, quote.expiresAt * 1000), true);
});

test('rotation: the first secret signs, all of them verify, others do not', async () => {
  const { quote, token } = await new Quotes([OLD], 300).issue(TERMS);
  assert.deepEqual(await new Quotes([NEW, OLD], 300).read(token), quote);
  assert.equal(await new Quotes([NEW], 300).read(token), undefined);
  const { token: newer } = await new Quotes([NEW, OLD], 300).issue(TERMS);
  assert.ok(await new Quotes([NEW], 300).read(newer));
});

test('a token that was not signed here is no quote', async () => {
  const quotes = new Quotes([NEW], 300);
  const { token } = await quotes.issue(TERMS);
  const [header, payload, signature] = token.split('.') as [string, string, string];
  const cheaper = Buffer.from(Buffer.from(payload, 'base64url').toString().replace('"198"', '"1"')).toString(
    'base64url',
  );
  const none = Buffer.from('{"alg":"none","typ":"speechgate-quote"}').toString('base64url');
  const otherType = await new CompactSign(Buffer.from('{}'))
    .setProtectedHeader({ alg: 'HS256', typ: 'JWT' })
    .sign(Buffer.from(NEW));
  const forgeries = [
    'x',
    '..',
    'a.b.c',
    `${header}.${cheaper}.${signature}`,
    `${none}.${payload}.`,
    `${token}x`,
    otherType,
  ];
  for (const forgery of forgeries) assert.equal(await quotes.read(forgery), undefined, forgery);
});
