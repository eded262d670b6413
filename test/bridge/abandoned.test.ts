/** Programs that time out, and ask for the same again by themselves. */
import assert from 'node:assert/strict';
import OpenAI from 'openai';
import { test } from 'tap';
import { HELLO, HELLO_MICRO_USD, openBridge } from '../support/bridge.ts';
import { Drip, silentMp3 } from '../support/stub-upstream.ts';
import { until } from '../support/until.ts';

const ORDER = { model: 'tts-1', voice: 'alloy', input: HELLO } as const;

test('what a program did not wait for is given to it when it asks again: it is charged once', async (t) => {
  const { bridge, upstream, balance, calls } = await openBridge(t);
  const drip = new Drip();
  upstream.mode = drip.mode;
  const openai = new OpenAI({ baseURL: bridge.url, apiKey: 'anything', timeout: 1_500, maxRetries: 5 });
  const asked = openai.audio.speech.create(ORDER);
  await drip.opened;
  await until(() => calls.length > 0, 10_000);
  await drip.write(silentMp3(960));
  drip.end();
  assert.equal((await (await asked).arrayBuffer()).byteLength, silentMp3(960).length);
  await until(() => calls.at(-1)?.end === 'spoken');
  assert.equal(await balance(), 1_000_000n - HELLO_MICRO_USD);
  assert.equal(upstream.requests.length, 1);
  const [first] = calls;
  assert.deepEqual([first?.end, first?.chargedMicroUsd], ['left', 0n]);
  assert.equal(
    calls.reduce((sum, { chargedMicroUsd }) => sum + chargedMicroUsd, 0n),
    HELLO_MICRO_USD,
  );
});
