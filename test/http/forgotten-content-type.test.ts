import assert from 'node:assert/strict';
import { test } from 'tap';
import { type Bench, bench } from '../journeys/card.ts';

const json = (value: unknown): string => JSON.stringify(value);

async function post({ gateway }: Bench, account: string, body: string | Buffer, type: string | undefined, query = '') {
  const headers = { 'x-credit-account': account, ...(type !== undefined && { 'content-type': type }) };
  return gateway.call(`/tts${query}`, { method: 'POST', headers, body });
}

test('R70 a JSON request that is labelled as text is refused, and not charged', async (t) => {
  const scene = await bench(t);
  const account = await scene.gateway.fund(500);
  const bodies: Record<string, string | Buffer> = {
    'a request of this service': json({ text: 'Hello world' }),
    'all of its members': json({ model: 'provider-a/tts-1', voice: 'provider-a_alloy', speed: 1, text: 'Hello world' }),
    "a request of OpenAI's API": json({ model: 'tts-1', input: 'Hello world', voice: 'alloy' }),
    'an empty text': json({ text: '' }),
    'with indentation': JSON.stringify({ text: 'Hello world' }, null, 2),
    'with space around it': `\r\n\t ${json({ text: 'Hello world' })}\n`,
    'with a byte order mark': `\ufeff${json({ text: 'Hello world' })}`,
    'with a byte order mark between spaces': ` \ufeff ${json({ text: 'Hello world' })}`,
    'with escaped characters': '{"\\u0074ext":"Hello world"}',
  };
  for (const [name, body] of Object.entries(bodies)) {
    for (const type of ['text/plain', 'text/plain;charset=UTF-8', 'Text/Plain; charset="utf-8"']) {
      for (const query of ['', '?async=true', '?voice=provider-a_nova&speed=1.5']) {
        const { status, json: answer } = await post(scene, account, body, type, query);
        const { code, message, details } = answer.error;
        assert.deepEqual([status, code, details.field], [400, 'INVALID_REQUEST', 'content-type'], `${name}, ${type}`);
        assert.match(message, /content-type: application\/json/);
      }
    }
  }
  assert.equal(scene.upstream.requests.length, 0);
  assert.equal(await scene.gateway.balance(account), 5_000_000n);
});

test('R70 JSON without a content type is refused as before', async (t) => {
  const scene = await bench(t);
  const account = await scene.gateway.fund(500);
  for (const type of [undefined, '', 'application/x-www-form-urlencoded', 'application/octet-stream', 'text/json']) {
    const { status, json: answer } = await post(scene, account, json({ text: 'Hello world' }), type);
    assert.deepEqual([status, answer.error.code], [415, 'UNSUPPORTED_CONTENT_TYPE'], type);
  }
  assert.equal(await scene.gateway.balance(account), 5_000_000n);
});

test('R70 other texts with braces and quotes are spoken', async (t) => {
  const scene = await bench(t);
  const account = await scene.gateway.fund(500);
  const texts = [
    '{text}',
    '{"text":"Hello world"',
    '{"text":"Hello world"} is what the client sent.',
    '{"text":1}',
    '{"greeting":"Hello world"}',
    '[{"text":"Hello world"}]',
    '"Hello world"',
    'null',
    '{}',
  ];
  for (const text of texts) {
    assert.equal((await post(scene, account, text, 'text/plain')).status, 200, text);
    assert.equal(scene.upstream.requests.at(-1)?.body?.input, text);
  }
});
