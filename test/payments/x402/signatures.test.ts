import assert from 'node:assert/strict';
import { readFile, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { decodePaymentSignatureHeader } from '@x402/core/http';
import { authorizationTypes } from '@x402/evm';
import fc from 'fast-check';
import { test } from 'tap';
import {
  bytesToHex,
  getAddress,
  hashDomain,
  hashStruct,
  hashTypedData,
  hexToBytes,
  keccak256,
  recoverTypedDataAddress,
  toHex,
} from 'viem';
import { privateKeyToAccount } from 'viem/accounts';
import type { Asset } from '../../../src/config/network.ts';
import { parseSigningKeys, rotateKeys, SigningKeysError, type StoredKeys } from '../../../src/config/signing-keys.ts';
import { canonicalQuery } from '../../../src/lib/canonical-query.ts';
import { domainSeparator, signingDigest } from '../../../src/lib/wallet-signature.ts';
import { hashPrepaidRequest } from '../../../src/payments/prepaid/prepaid-credential.ts';
import {
  CANONICAL_QUERY_VECTORS,
  PAYMENT_VECTOR,
  SIGNING_VECTORS,
} from '../../../src/payments/prepaid/prepaid-vectors.ts';
import { decodeEnvelope, type Hex } from '../../../src/payments/x402/envelope.ts';
import { PREPAID_SIGNING, PREPAID_TYPES } from '../../../src/payments/x402/signed-types.ts';
import { isSignedByPayer } from '../../../src/payments/x402/transfer-proof.ts';
import { signAuthorization } from '../../support/chain.ts';
import { operatorCommand } from '../../support/operator-command.ts';
import { hashWithViem } from '../../support/prepaid.ts';
import { temporaryFolder } from '../../support/temporary-folder.ts';

const bytes = (length: number) => fc.uint8Array({ minLength: length, maxLength: length });
const uint256 = fc.bigInt({ min: 0n, max: 2n ** 256n - 1n });
const address = bytes(20).map((value) => getAddress(bytesToHex(value)));

test("the digest equals viem's for any domain and request", async () => {
  const domain = fc.record({
    name: fc.string({ unit: 'grapheme' }),
    // viem leaves an empty version out of the domain's type.
    version: fc.string({ minLength: 1 }),
    chainId: fc.nat(),
    verifyingContract: address,
  });
  const request = fc.record({
    account: address,
    method: fc.string(),
    path: fc.string({ unit: 'grapheme' }),
    bodyHash: bytes(32),
    maxAmountMicroUsd: uint256,
    nonce: fc.string(),
    expiry: uint256,
  });
  fc.assert(
    fc.property(domain, request, (domain, request) => {
      const own = signingDigest(domainSeparator(domain), hashPrepaidRequest(request));
      const message = { ...request, bodyHash: bytesToHex(request.bodyHash) };
      assert.equal(bytesToHex(own), hashWithViem(domain as never, message));
    }),
    { numRuns: 300 },
  );
});

const HALF_ORDER = 0x7fffffffffffffffffffffffffffffff5d576e7357a4501ddfe92f46681b20a0n;
const DOMAIN_FIELDS = [
  { name: 'name', type: 'string' },
  { name: 'version', type: 'string' },
  { name: 'chainId', type: 'uint256' },
  { name: 'verifyingContract', type: 'address' },
] as const;

const { privateKey, address: vectorAddress, domain, requests } = SIGNING_VECTORS;

/** The canonical query of a well-formed query, written apart from the service's. */
function canonical(query: string): string {
  const decode = (text: string) => decodeURIComponent(text.replaceAll('+', '%20'));
  const units = (text: string) => Array.from({ length: text.length }, (_, at) => text.charCodeAt(at));
  const order = (a: number[], b: number[]): number => {
    const at = a.findIndex((unit, index) => unit !== b[index]);
    return at === -1 ? a.length - b.length : (a[at] as number) - (b[at] ?? -1);
  };
  return query
    .split('&')
    .filter(Boolean)
    .map((pair) => {
      const [, name = '', value = ''] = /^([^=]*)=?(.*)$/s.exec(pair) ?? [];
      return { name: decode(name), value: decode(value) };
    })
    .sort((a, b) => order(units(a.name), units(b.name)) || order(units(a.value), units(b.value)))
    .map(({ name, value }) => `${encodeURIComponent(name)}=${encodeURIComponent(value)}`)
    .join('&');
}

const messageOf = ({ message }: (typeof requests)[number]) => ({
  ...message,
  maxAmountMicroUsd: BigInt(message.maxAmountMicroUsd),
  expiry: BigInt(message.expiry),
});

test('R49: the published canonical queries match the service and a second version', async (t) => {
  for (const { shows, query, canonical: expected } of CANONICAL_QUERY_VECTORS) {
    t.equal(canonical(query), expected, shows);
    t.equal(canonicalQuery(`/x402/tts?${query}`), expected, shows);
  }
});

test('each published request hashes its body, its canonical query, or nothing', async (t) => {
  for (const { shows, request, hashedText, hashedBytes, message } of requests) {
    const [path, query = ''] = request.target.split('?') as [string, string?];
    t.strictSame([request.method, path], [message.method, message.path], shows);
    t.equal(hashedText, 'body' in request ? request.body : canonical(query), shows);
    t.equal(hashedBytes, toHex(hashedText), shows);
    t.equal(message.bodyHash, keccak256(hashedBytes), shows);
  }
});

test('every published hash and signature matches viem and is low-s', async (t) => {
  const account = privateKeyToAccount(privateKey);
  const types = { ...PREPAID_TYPES, EIP712Domain: DOMAIN_FIELDS };
  const typeHash = (name: string, fields: readonly { name: string; type: string }[]) =>
    keccak256(toHex(`${name}(${fields.map((field) => `${field.type} ${field.name}`).join(',')})`));
  t.equal(vectorAddress, account.address);
  t.equal(SIGNING_VECTORS.domainTypeHash, typeHash('EIP712Domain', DOMAIN_FIELDS));
  t.equal(SIGNING_VECTORS.requestTypeHash, typeHash('PrepaidRequest', PREPAID_TYPES.PrepaidRequest));
  t.equal(
    SIGNING_VECTORS.domainSeparator,
    hashDomain({ domain: { ...domain, chainId: BigInt(domain.chainId) }, types }),
  );
  for (const vector of requests) {
    const { shows, headers } = vector;
    const signature = headers['x-x402-signature'];
    const message = messageOf(vector);
    const typed = { domain, types: PREPAID_TYPES, primaryType: 'PrepaidRequest', message } as const;
    t.equal(vector.structHash, hashStruct({ data: message, primaryType: 'PrepaidRequest', types }), shows);
    t.equal(vector.digest, hashTypedData(typed), shows);
    t.equal(signature, await account.signTypedData(typed), shows);
    t.equal(await recoverTypedDataAddress({ ...typed, signature }), vectorAddress, shows);
    t.equal(hexToBytes(signature).length, 65, shows);
    t.ok(BigInt(`0x${signature.slice(66, 130)}`) <= HALF_ORDER, shows);
    const { account: signer, nonce, expiry, maxAmountMicroUsd } = vector.message;
    t.strictSame(
      headers,
      Object.fromEntries(
        [signer, nonce, expiry, maxAmountMicroUsd, signature].map((value, at) => [PREPAID_SIGNING.headers[at], value]),
      ),
      shows,
    );
  }
  t.strictSame(
    new Set(requests.map(({ headers }) => headers['x-x402-signature'].slice(-2))),
    new Set(['1b', '1c']),
    'v is 27 in one and 28 in another',
  );
});

test('the published direct payment matches viem, the official client and the service', async (t) => {
  const { typedData, digest, signature, payload, headers } = PAYMENT_VECTOR;
  const { domain, types, primaryType, message } = typedData;
  const [value, validAfter, validBefore] = [message.value, message.validAfter, message.validBefore].map(BigInt) as [
    bigint,
    bigint,
    bigint,
  ];
  const typed = { domain, types, primaryType, message: { ...message, value, validAfter, validBefore } } as const;
  t.strictSame(types.TransferWithAuthorization, authorizationTypes.TransferWithAuthorization);
  t.equal(digest, hashTypedData(typed));
  t.equal(signature, await privateKeyToAccount(privateKey).signTypedData(typed));
  const header = headers['payment-signature'];
  t.strictSame(decodePaymentSignatureHeader(header), payload);
  const { network, asset: address } = payload.accepted;
  const asset = { network, chainId: domain.chainId, address, name: domain.name, version: domain.version };
  t.ok(isSignedByPayer(decodeEnvelope(header), asset));
});

const hexBytes = (length: number) =>
  fc.uint8Array({ minLength: length, maxLength: length }).map((value) => bytesToHex(value));
const belowMaximum = fc.bigInt({ min: 0n, max: 2n ** 256n - 2n });
const hexAddress = hexBytes(20);

test('EIP-3009: only the exact transfer that its payer signed for this token verifies', async () => {
  const payment = fc.record({
    secret: fc.bigInt({ min: 1n, max: 2n ** 255n }),
    token: fc.record({
      name: fc.string({ unit: 'grapheme', minLength: 1 }),
      version: fc.string({ minLength: 1 }),
      chainId: fc.nat(),
      address: hexAddress.map((value) => getAddress(value)),
    }),
    terms: fc.record({
      to: hexAddress,
      value: belowMaximum,
      validAfter: belowMaximum,
      validBefore: belowMaximum,
      nonce: hexBytes(32),
    }),
  });
  await fc.assert(
    fc.asyncProperty(payment, async ({ secret, token, terms }) => {
      const account = privateKeyToAccount(`0x${secret.toString(16).padStart(64, '0')}`);
      const from = account.address.toLowerCase() as Hex;
      const { name, version, chainId, address: verifyingContract } = token;
      const domain = { name, version, chainId, verifyingContract };
      const signed = await signAuthorization(account, { from, ...terms }, 'TransferWithAuthorization', domain);
      const asset: Asset = { network: `eip155:${token.chainId}`, ...token };
      const isSigned = (changedTerms: object, changedToken: object = {}) =>
        isSignedByPayer(
          { ...signed, authorization: { ...signed.authorization, ...changedTerms } },
          { ...asset, ...changedToken },
        );
      assert.ok(isSigned({}));
      const other = `0x${'5a'.repeat(20)}`;
      for (const change of [
        { from: other },
        { to: other },
        { value: terms.value + 1n },
        { validAfter: terms.validAfter + 1n },
        { validBefore: terms.validBefore + 1n },
        { nonce: `0x${'5a'.repeat(32)}` },
      ]) {
        assert.ok(!isSigned(change), JSON.stringify(Object.keys(change)));
      }
      for (const change of [
        { name: `${token.name}.` },
        { version: `${token.version}.` },
        { chainId: token.chainId + 1 },
        { address: other },
      ]) {
        assert.ok(!isSigned({}, change), JSON.stringify(change));
      }
    }),
    { numRuns: 50 },
  );
});

const NOW = new Date('2026-01-01T00:00:00Z');
const days = (count: number) => new Date(NOW.getTime() + count * 86_400_000);
const statuses = (stored: StoredKeys) => stored.keys.map(({ status }) => status);
const parse = (stored: unknown, now = NOW) => parseSigningKeys(JSON.stringify(stored), now);

test('rotation: next becomes current, current retires, and expired keys are dropped', async (t) => {
  const first = rotateKeys(undefined, NOW);
  t.strictSame(statuses(first), ['current', 'next']);
  const second = rotateKeys(first, days(10));
  t.strictSame(statuses(second), ['retiring', 'current', 'next']);
  t.equal(second.keys[1]?.kid, first.keys[1]?.kid);
  t.equal(second.keys[0]?.validUntil, days(40).toISOString());
  const third = rotateKeys(second, days(41));
  t.strictSame(statuses(third), ['retiring', 'current', 'next']);
  t.equal(third.keys[0]?.kid, first.keys[1]?.kid);
  t.equal(parse(third, days(41)).length, 3);
});

test('a key set without a next key is not rotated', async () => {
  const { keys } = rotateKeys(undefined, NOW);
  assert.throws(() => rotateKeys({ keys: keys.slice(0, 1) }, NOW), SigningKeysError);
});

const { keys } = rotateKeys(undefined, NOW);
const [current, next] = keys as [(typeof keys)[0], (typeof keys)[0]];
const FAULTS: [string, unknown][] = [
  ['no JWK Set', [current]],
  ['no keys', { keys: [] }],
  ['a key that is null', { keys: [null] }],
  ['no current key', { keys: [next] }],
  ['two current keys', { keys: [current, { ...next, status: 'current' }] }],
  ['a current key not valid yet', { keys: [{ ...current, validFrom: '2026-01-02' }] }],
  ['a current key that has ended', { keys: [{ ...current, validUntil: '2025-12-31' }] }],
  ['a kid given twice', { keys: [current, { ...next, kid: current.kid }] }],
  ['a public key', { keys: [{ ...current, d: undefined }] }],
  ['a key of another curve', { keys: [{ ...current, crv: 'P-384' }] }],
  ['a point off the curve', { keys: [{ ...current, x: current.y }] }],
  ['an invalid date', { keys: [{ ...current, validFrom: 'soon' }] }],
  ['an unknown status', { keys: [{ ...current, status: 'former' }] }],
];

test('a faulty key file is refused without showing a key', async () => {
  for (const [name, stored] of FAULTS) {
    const isSilent = (error: unknown) =>
      error instanceof SigningKeysError && !error.message.includes(String(current.d));
    assert.throws(() => parse(stored), isSilent, name);
  }
});

test('speechgate keys creates the file with mode 0600 and rotates it', async (t) => {
  const file = join(await temporaryFolder(t), 'keys.json');
  const stored: ReturnType<typeof parseSigningKeys>[] = [];
  for (const word of [/^Made /, /^Rotated /]) {
    t.match((await operatorCommand({ SIGNING_KEYS_FILE: file }, 'keys')).output, word);
    t.equal((await stat(file)).mode & 0o777, 0o600);
    stored.push(parseSigningKeys(await readFile(file, 'utf8'), new Date()));
  }
  const [before, after] = stored;
  t.equal(after?.find(({ status }) => status === 'current')?.keyId, before?.[1]?.keyId);
});
