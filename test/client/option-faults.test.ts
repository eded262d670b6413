/** A cap that is no amount, or is misspelt, is refused: it would be none. */
import assert from 'node:assert/strict';
import { test } from 'tap';
import { openFileBudget } from '../../src/budget/file-budget.ts';
import { cardCredits, Speechgate } from '../../src/client/index.ts';
import { ONE_MODEL } from '../support/client.ts';

const NO_AMOUNTS: readonly unknown[] = [Number.NaN, 5, '5', '5n', -1n, null, {}, true];
const OPTIONS = { baseUrl: 'https://speech.example', pay: cardCredits('a') };
// biome-ignore lint/suspicious/noExplicitAny: callers without types give anything.
const open = (options: any) => new Speechgate({ ...OPTIONS, ...options });

for (const name of ['maxPerRequestMicroUsd', 'maxTotalMicroUsd']) {
  test(`a client refuses a ${name} that is no amount`, async () => {
    for (const value of NO_AMOUNTS) {
      assert.throws(() => open({ [name]: value }), { name: 'TypeError', message: new RegExp(name) });
    }
    open({ [name]: 0n });
  });
}

test('a client refuses options that it does not have, and values that are none', async () => {
  for (const options of [
    { maxPerRequest: 5n },
    { MaxTotalMicroUsd: 5n },
    { baseUrl: 5 },
    { baseUrl: 'speech' },
    { baseUrl: 'https://speech.example/v1' },
    { pay: 'card' },
    { trust: 'key' },
    { budget: 5n },
    { patienceMs: Number.NaN },
    { patienceMs: -1 },
    { fetch: 'fetch' },
  ]) {
    assert.throws(() => open(options), TypeError, Object.keys(options).join());
  }
});

test('a cap that a prototype gives holds too', async () => {
  const options = Object.create({ ...OPTIONS, maxPerRequestMicroUsd: 1n, fetch: catalogOnly });
  await assert.rejects(new Speechgate(options).speak({ text: 'Hello world' }), { name: 'OverCapError' });
});

test('a cap that is changed later in the object that was given changes nothing', async () => {
  const options = { ...OPTIONS, maxPerRequestMicroUsd: 1n, fetch: catalogOnly };
  const client = new Speechgate(options);
  options.maxPerRequestMicroUsd = 1_000_000n;
  await assert.rejects(client.speak({ text: 'Hello world' }), { name: 'OverCapError' });
});

test('a purchase refuses a cap that is no amount, and options that it does not have', async () => {
  const client = open({});
  for (const value of NO_AMOUNTS) {
    // biome-ignore lint/suspicious/noExplicitAny: callers without types give anything.
    const options: any = { maxMicroUsd: value };
    await assert.rejects(client.speak({ text: 'a' }, options), { name: 'TypeError', message: /maxMicroUsd/ });
  }
  // biome-ignore lint/suspicious/noExplicitAny: callers without types give anything.
  const misspelt: any = { maxMicroUSD: 5n };
  await assert.rejects(client.speak({ text: 'a' }, misspelt), { name: 'TypeError', message: /maxMicroUSD/ });
  // biome-ignore lint/suspicious/noExplicitAny: callers without types give anything.
  await assert.rejects(client.deposit(5 as any), { name: 'TypeError' });
});

test('a budget refuses limits that are no amounts, and those that it does not have', async (t) => {
  const path = `${t.testdir()}/budget`;
  for (const name of ['perCallMicroUsd', 'perDayMicroUsd', 'totalMicroUsd']) {
    for (const value of NO_AMOUNTS) {
      await assert.rejects(openFileBudget(path, { [name]: value }), { name: 'TypeError', message: new RegExp(name) });
    }
  }
  // biome-ignore lint/suspicious/noExplicitAny: callers without types give anything.
  await assert.rejects(openFileBudget(path, { perDay: 5n } as any), { name: 'TypeError', message: /perDay/ });
});

const catalogOnly = async () => Response.json(ONE_MODEL);
