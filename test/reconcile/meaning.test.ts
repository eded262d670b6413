import assert from 'node:assert/strict';
import { test } from 'tap';
import { meaningOf } from '../../src/reconcile/meaning.ts';
import { loadCatalog } from '../../src/speech/catalog.ts';
import { isPrice, priceMicroUsd } from '../../src/speech/price.ts';

const catalog = loadCatalog();

test('an amount tells what it can have been: by the built-in catalog, 18 or 36 micro-USD a character', async () => {
  const meanings = [
    [0n, 'neither'],
    [17n, 'neither'],
    [18n, 'speech'],
    [198n, 'speech'],
    [99_999n, 'neither'],
    [100_000n, 'deposit'],
    [108_000n, 'either'],
    [147_456n, 'either'],
    [147_492n, 'deposit'],
    [100_000_000n, 'deposit'],
    [100_000_001n, 'neither'],
  ] as const;
  for (const [amount, meaning] of meanings) assert.equal(meaningOf(amount, catalog), meaning, `${amount}`);
});

test('an amount is a price if and only if a text of some length has it', async () => {
  for (const rate of [1n, 333_333n, 1_000_000n, 1_500_001n, 18_000_000n]) {
    const prices = new Set(Array.from({ length: 50 }, (_, index) => priceMicroUsd(index + 1, rate)));
    for (let amount = 0n; amount < 1000n; amount++) {
      assert.equal(isPrice(amount, rate, 50), prices.has(amount), `${amount} at ${rate}`);
    }
  }
});
