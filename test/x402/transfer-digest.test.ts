import assert from 'node:assert/strict';
import fc from 'fast-check';
import { test } from 'tap';
import { bytesToHex, getAddress } from 'viem';
import { privateKeyToAccount } from 'viem/accounts';
import type { Hex } from '../../src/x402/envelope.ts';
import type { Asset } from '../../src/x402/network.ts';
import { isSignedByPayer } from '../../src/x402/transfer-digest.ts';
import { signAuthorization } from '../support/chain.ts';

const bytes = (length: number) =>
  fc.uint8Array({ minLength: length, maxLength: length }).map((value) => bytesToHex(value));
const uint256 = fc.bigInt({ min: 0n, max: 2n ** 256n - 2n });
const address = bytes(20);

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
