import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { test } from 'tap';
import { hexToBytes, keccak256 as keccakOfViem } from 'viem';
import { keccak256 } from '../../src/crypto/keccak.ts';

/** Bytes that keccak-256 takes in at once. */
const RATE = 136;
const LENGTHS = [0, 1, 32, RATE - 1, RATE, RATE + 1, 2 * RATE, 4096, 16_384, 16_385, 100_000];

test('keccak-256 is that of viem for any length, and a digest stays when the next one is made', async () => {
  const inputs = LENGTHS.map((length) => randomBytes(length));
  const digests = inputs.map(keccak256);
  assert.deepEqual(
    digests.map((digest) => [...digest]),
    inputs.map((input) => [...hexToBytes(keccakOfViem(input))]),
  );
});
