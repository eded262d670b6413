import assert from 'node:assert/strict';
import fc from 'fast-check';
import { test } from 'tap';
import { bytesToHex, getAddress, hexToBytes } from 'viem';
import { privateKeyToAccount } from 'viem/accounts';
import { domainSeparator, signingDigest } from '../../src/crypto/eip712.ts';
import { recoverAddress } from '../../src/crypto/wallet-signature.ts';
import { hashPrepaidRequest } from '../../src/x402/prepaid-typed-data.ts';
import { hashWithViem } from '../support/prepaid.ts';

const ORDER = 0xfffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141n;
const bytes = (length: number) => fc.uint8Array({ minLength: length, maxLength: length });
const uint256 = fc.bigInt({ min: 0n, max: 2n ** 256n - 1n });
const address = bytes(20).map((value) => getAddress(bytesToHex(value)));

test('the digest is that of viem for any domain and request', async () => {
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

test('R30: what viem signs is recovered; its high-s twin, another v and other lengths are not', async () => {
  await fc.assert(
    fc.asyncProperty(bytes(32), fc.bigInt({ min: 1n, max: ORDER - 1n }), async (digest, secret) => {
      const account = privateKeyToAccount(`0x${secret.toString(16).padStart(64, '0')}`);
      const signature = await account.sign({ hash: bytesToHex(digest) });
      assert.equal(recoverAddress(digest, signature), account.address.toLowerCase());
      const raw = hexToBytes(signature);
      const s = BigInt(bytesToHex(raw.slice(32, 64)));
      const twin = `${bytesToHex(raw.slice(0, 32))}${(ORDER - s).toString(16).padStart(64, '0')}` as const;
      assert.equal(recoverAddress(digest, `${twin}${raw[64] === 27 ? '1c' : '1b'}` as `0x${string}`), undefined);
      assert.equal(recoverAddress(digest, `${signature.slice(0, -2)}1d` as `0x${string}`), undefined);
      assert.equal(recoverAddress(digest, `${signature}00`), undefined);
    }),
    { numRuns: 30 },
  );
});
