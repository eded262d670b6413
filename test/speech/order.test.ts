import assert from 'node:assert/strict';
import fc from 'fast-check';
import { test } from 'tap';
import { loadCatalog } from '../../src/speech/catalog.ts';
import { type OrderRequest, placeOrder } from '../../src/speech/order.ts';
import { priceMicroUsd } from '../../src/speech/price.ts';

const catalog = loadCatalog();

test('R3: the price is ceil(characters x rate) in whole micro-USD', async (t) => {
  const cases: [number, bigint, bigint][] = [
    [1, 18_000_000n, 18n],
    [11, 18_000_000n, 198n],
    [4096, 36_000_000n, 147_456n],
    [1, 1n, 1n],
    [1_000_000, 1n, 1n],
    [1_000_001, 1n, 2n],
    [3, 1_500_000n, 5n],
  ];
  for (const [characters, rate, price] of cases) assert.equal(priceMicroUsd(characters, rate), price);

  await t.test('never below the exact price, and less than one micro-USD above it', async () => {
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 60_000 }), fc.bigInt({ min: 1n, max: 10n ** 12n }), (characters, rate) => {
        const exact = BigInt(characters) * rate;
        const price = priceMicroUsd(characters, rate) * 1_000_000n;
        assert.ok(price >= exact && price < exact + 1_000_000n);
      }),
    );
  });
});

test('R7: what the contract can not say is checked in the order model, voice, speed, cap', async (t) => {
  const long = 'a'.repeat(4097);
  const cases: [string, OrderRequest, string][] = [
    ['all wrong', { text: long, model: 'x', voice: 'x', speed: 9 }, 'UNKNOWN_TTS_MODEL'],
    ['voice, speed and cap', { text: long, voice: 'alloy', speed: 9 }, 'INVALID_VOICE'],
    ['speed and cap', { text: long, speed: '1e0' }, 'INVALID_SPEED'],
    ['the cap', { text: long }, 'TEXT_TOO_LONG'],
    ['an upstream name', { text: 'a', model: 'tts-1' }, 'UNKNOWN_TTS_MODEL'],
    ['a voice in another case', { text: 'a', voice: 'provider-a_Alloy' }, 'INVALID_VOICE'],
    ['a speed with a sign', { text: 'a', speed: '+1' }, 'INVALID_SPEED'],
    ['a speed below', { text: 'a', speed: 0.49 }, 'INVALID_SPEED'],
    ['no number', { text: 'a', speed: Number.NaN }, 'INVALID_SPEED'],
  ];
  for (const [name, request, code] of cases) {
    await t.test(name, async () => {
      const result = placeOrder(catalog, request);
      assert.equal(result.outcome === 'refused' && result.code, code);
    });
  }
});

test('R1, R2: characters are UTF-16 units of the trimmed text', async () => {
  const cases: [string, string, number][] = [
    ['  Hello world\n', 'Hello world', 11],
    ['\ufeffa\u00a0', 'a', 1],
    ['😀', '😀', 2],
    ['e\u0301', 'e\u0301', 2],
    ['語', '語', 1],
  ];
  for (const [given, spoken, characters] of cases) {
    const result = placeOrder(catalog, { text: given });
    assert.ok(result.outcome === 'placed');
    assert.equal(result.order.text, spoken);
    assert.equal(result.order.characters, characters);
  }
});

test('what is left out is the default model, its default voice and natural pace', async () => {
  const result = placeOrder(catalog, { text: 'a' });
  assert.ok(result.outcome === 'placed');
  const { model, voice, speed } = result.order;
  assert.deepEqual([model.id, voice.id, speed], ['provider-a/tts-1', 'provider-a_alloy', 1]);
});
