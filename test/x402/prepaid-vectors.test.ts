import assert from 'node:assert/strict';
import { test } from 'tap';
import {
  bytesToHex,
  hashDomain,
  hashStruct,
  hashTypedData,
  hexToBytes,
  keccak256,
  recoverTypedDataAddress,
  toHex,
} from 'viem';
import { privateKeyToAccount } from 'viem/accounts';
import { domainSeparator, signingDigest } from '../../src/crypto/eip712.ts';
import { canonicalQuery } from '../../src/x402/canonical-query.ts';
import {
  PrepaidVerifier,
  readCredential,
  signedBalanceRead,
  signedRequestOf,
} from '../../src/x402/prepaid-credential.ts';
import { PREPAID } from '../../src/x402/prepaid-terms.ts';
import { hashPrepaidRequest } from '../../src/x402/prepaid-typed-data.ts';
import { PREPAID_TYPES } from '../../src/x402/prepaid-types.ts';
import { CANONICAL_QUERY_VECTORS, SIGNING_VECTORS } from '../../src/x402/prepaid-vectors.ts';

const HALF_ORDER = 0x7fffffffffffffffffffffffffffffff5d576e7357a4501ddfe92f46681b20a0n;
const DOMAIN_FIELDS = [
  { name: 'name', type: 'string' },
  { name: 'version', type: 'string' },
  { name: 'chainId', type: 'uint256' },
  { name: 'verifyingContract', type: 'address' },
] as const;

const { privateKey, address, domain, requests } = SIGNING_VECTORS;

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

test('R49: the published canonical queries are those of a second implementation and of the service', async () => {
  for (const { shows, query, canonical: expected } of CANONICAL_QUERY_VECTORS) {
    assert.equal(canonical(query), expected, shows);
    assert.equal(canonicalQuery(`/x402/tts?${query}`), expected, shows);
  }
});

test('what is hashed of each published request is its body, its canonical query, or nothing to read a balance', async () => {
  for (const { shows, request, hashedText, hashedBytes, message } of requests) {
    const [path, query = ''] = request.target.split('?') as [string, string?];
    assert.deepEqual([request.method, path], [message.method, message.path], shows);
    assert.equal(hashedText, 'body' in request ? request.body : canonical(query), shows);
    assert.equal(hashedBytes, toHex(hashedText), shows);
    assert.equal(message.bodyHash, keccak256(hashedBytes), shows);
  }
});

test('every published hash and signature is that of viem, and the signatures are low-s', async () => {
  const account = privateKeyToAccount(privateKey);
  const types = { ...PREPAID_TYPES, EIP712Domain: DOMAIN_FIELDS };
  const typeHash = (name: string, fields: readonly { name: string; type: string }[]) =>
    keccak256(toHex(`${name}(${fields.map((field) => `${field.type} ${field.name}`).join(',')})`));
  assert.equal(address, account.address);
  assert.equal(SIGNING_VECTORS.domainTypeHash, typeHash('EIP712Domain', DOMAIN_FIELDS));
  assert.equal(SIGNING_VECTORS.requestTypeHash, typeHash('PrepaidRequest', PREPAID_TYPES.PrepaidRequest));
  assert.equal(
    SIGNING_VECTORS.domainSeparator,
    hashDomain({ domain: { ...domain, chainId: BigInt(domain.chainId) }, types }),
  );
  for (const vector of requests) {
    const { shows, headers } = vector;
    const signature = headers['x-x402-signature'];
    const message = messageOf(vector);
    const typed = { domain, types: PREPAID_TYPES, primaryType: 'PrepaidRequest', message } as const;
    assert.equal(vector.structHash, hashStruct({ data: message, primaryType: 'PrepaidRequest', types }), shows);
    assert.equal(vector.digest, hashTypedData(typed), shows);
    assert.equal(signature, await account.signTypedData(typed), shows);
    assert.equal(await recoverTypedDataAddress({ ...typed, signature }), address, shows);
    assert.equal(hexToBytes(signature).length, 65, shows);
    assert.ok(BigInt(`0x${signature.slice(66, 130)}`) <= HALF_ORDER, shows);
    const { account: signer, nonce, expiry, maxAmountMicroUsd } = vector.message;
    assert.deepEqual(
      headers,
      Object.fromEntries(
        [signer, nonce, expiry, maxAmountMicroUsd, signature].map((value, at) => [PREPAID.headers[at], value]),
      ),
      shows,
    );
  }
  assert.deepEqual(
    new Set(requests.map(({ headers }) => headers['x-x402-signature'].slice(-2))),
    new Set(['1b', '1c']),
    'v is 27 in one and 28 in another',
  );
});

test('the service computes the published hashes, and takes the published headers for signed by their account', async () => {
  const separator = domainSeparator(domain);
  assert.equal(bytesToHex(separator), SIGNING_VECTORS.domainSeparator);
  const serviceName = domain.name.replace('-Prepaid', '');
  const { chainId, verifyingContract } = domain;
  const asset = {
    network: `eip155:${chainId}`,
    chainId,
    address: verifyingContract,
    name: 'USDC',
    version: '2',
  } as const;
  const payee = { address: verifyingContract, status: 'current', validFrom: undefined, validUntil: undefined } as const;
  const verifier = new PrepaidVerifier(serviceName, asset, [payee]);
  for (const vector of requests) {
    const { shows, request, digest } = vector;
    const hash = hashPrepaidRequest({ ...messageOf(vector), bodyHash: hexToBytes(vector.message.bodyHash) });
    assert.equal(bytesToHex(hash), vector.structHash, shows);
    assert.equal(bytesToHex(signingDigest(separator, hash)), digest, shows);
    const credential = readCredential(vector.headers);
    assert.ok(credential, shows);
    const { method, target: url } = request;
    const received = url.startsWith('/x402/accounts/')
      ? signedBalanceRead({ url })
      : signedRequestOf({ method, url, bytes: Buffer.from('body' in request ? request.body : '') });
    assert.equal(verifier.isSignedByAccount(credential, received), true, shows);
    assert.equal(verifier.isSignedByAccount(credential, { ...received, path: '/x402/other' }), false, shows);
  }
});
