/** What a service says reaches a program as the service's: short, printable, and last. */
import assert from 'node:assert/strict';
import { type Test, test } from 'tap';
import { startBridge } from '../../src/bridge/bridge.ts';
import { SAID, talkativeService } from '../support/talkative-service.ts';

async function start(t: Test) {
  const service = talkativeService();
  const { client } = service;
  const bridge = await startBridge({ client, budget: undefined, flow: 'card', port: 0, token: null });
  t.teardown(() => bridge.close(1_000));
  const ask = async (order: object) => {
    const response = await fetch(`${bridge.url}/audio/speech`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ input: 'Hello', ...order }),
    });
    return ((await response.json()) as { error: { message: string; code: string } }).error;
  };
  const list = async (path: string) => (await fetch(`${bridge.url}${path}`)).text();
  return { ...service, ask, list };
}

test('an error ends with what the service says, at most 300 printable characters', async (t) => {
  const { ask, refusal } = await start(t);
  for (const status of [400, 413, 429]) {
    refusal.status = status;
    const { message, code } = await ask({ model: 'm0', voice: 'v0' });
    assert.match(message, SAID, `${status}: ${message}`);
    assert.ok(message.length < 600, `${status}: ${message.length} characters`);
    assert.ok(code.length <= 100, code);
  }
});

test('models and voices whose ids are none are neither listed nor bought', async (t) => {
  const { ask, list } = await start(t);
  for (const path of ['/models', '/audio/models', '/audio/voices']) {
    // biome-ignore lint/suspicious/noControlCharactersInRegex: they are what must not be there.
    assert.doesNotMatch(await list(path), /[\u001b\u202e]|\\u001b|W{301}|дом/, path);
  }
  const { message } = await ask({ model: 'm0', voice: 'none' });
  assert.match(message, /It has v0, v1, .* and 50 more\. Nothing was bought\.$/);
});
