import assert from 'node:assert/strict';
import { test } from 'tap';
import { HELLO, openBridge } from '../support/bridge.ts';
import { openAiError } from '../support/stub-upstream.ts';

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
