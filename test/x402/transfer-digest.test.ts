import assert from 'node:assert/strict';
import fc from 'fast-check';
import { test } from 'tap';
import { bytesToHex, getAddress } from 'viem';
import { privateKeyToAccount } from 'viem/accounts';
import type { Hex } from '../../src/x402/envelope.ts';
import type { Asset } from '../../src/x402/network.ts';
import { isSignedByPayer } from '../../src/x402/transfer-digest.ts';

const bytes = (length: number) =>
  fc.uint8Array({ minLength: length, maxLength: length }).map((value) => bytesToHex(value));
const uint256 = fc.bigInt({ min: 0n, max: 2n ** 256n - 2n });
const address = bytes(20);

/** As EIP-3009 writes it. */
const types = {
  TransferWithAuthorization: [
    { name: 'from', type: 'address' },
    { name: 'to', type: 'address' },
    { name: 'value', type: 'uint256' },
    { name: 'validAfter', type: 'uint256' },
    { name: 'validBefore', type: 'uint256' },
    { name: 'nonce', type: 'bytes32' },
  ],
} as const;

test("EIP-3009: a transfer is its payer's when viem has signed it for this token, and not once anything about it differs", async () => {
  const payment = fc.record({
    secret: fc.bigInt({ min: 1n, max: 2n ** 255n }),
    token: fc.record({
      name: fc.string({ unit: 'grapheme', minLength: 1 }),
      version: fc.string({ minLength: 1 }),
      chainId: fc.nat(),
      address: address.map((value) => getAddress(value)),
    }),
    terms: fc.record({ to: address, value: uint256, validAfter: uint256, validBefore: uint256, nonce: bytes(32) }),
  });
  await fc.assert(
    fc.asyncProperty(payment, async ({ secret, token, terms }) => {
      const account = privateKeyToAccount(`0x${secret.toString(16).padStart(64, '0')}`);
      const authorization = { from: account.address.toLowerCase() as Hex, ...terms };
      const domain = { ...token, address: undefined, verifyingContract: token.address };
      const signature = await account.signTypedData({
        domain,
        types,
        primaryType: 'TransferWithAuthorization',
        message: authorization,
      });
      const asset: Asset = { network: `eip155:${token.chainId}`, ...token };
      const isSigned = (changedTerms: object, changedToken: object = {}) =>
        isSignedByPayer(
          { authorization: { ...authorization, ...changedTerms }, signature },
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
