import assert from 'node:assert/strict';
import { test } from 'tap';
import { HELLO, openBridge } from '../support/bridge.ts';
import { Drip, openAiError, silentMp3 } from '../support/stub-upstream.ts';

const ask = (url: string) =>
  fetch(`${url}/audio/speech`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ model: 'tts-1', input: HELLO, voice: 'alloy', response_format: 'wav' }),
  });

test('a bridge error says that nothing was charged in a header', async (t) => {
  const { bridge, upstream, balance } = await openBridge(t);
  upstream.mode = openAiError(400);
  const reply = await ask(bridge.url);
  const { error } = (await reply.json()) as { error: { message: string } };
  assert.deepEqual([reply.status, reply.headers.get('x-should-retry')], [502, 'false'], error.message);
  assert.equal(reply.headers.get('x-speechgate-charged-usd'), '0.000000');
  assert.doesNotMatch(error.message, /You were charged/);
  assert.equal(await balance(), 1_000_000n);
});

test('a bridge error says what was charged, or may have been', async (t) => {
  const { bridge, upstream } = await openBridge(t);
  const drip = new Drip();
  upstream.mode = drip.mode;
  const asked = ask(bridge.url);
  await drip.opened;
  drip.write(silentMp3(500));
  drip.reset();
  const reply = await asked;
  const { error } = (await reply.json()) as { error: { message: string } };
  assert.equal(reply.headers.get('x-should-retry'), 'false', error.message);
  assert.match(error.message, /You were charged (up to )?\$0\.000198\./);
  assert.equal(reply.headers.get('x-speechgate-charged-usd'), '0.000198');
});
