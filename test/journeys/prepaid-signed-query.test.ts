import assert from 'node:assert/strict';
import { once } from 'node:events';
import { type IncomingMessage, request } from 'node:http';
import { test } from 'tap';
import { depositor, startPrepaidGateway, TTS } from '../support/prepaid.ts';

test('R49: a GET is signed over the canonical query, however its URL is spelt', async (t) => {
  const gateway = await startPrepaidGateway(t);
  const { sign } = await depositor(gateway, 100_000n);
  for (const [url, query] of [
    ['?text=Hello+world', 'text=Hello%20world'],
    ['?text=Hello%20world', 'text=Hello%20world'],
    ['?voice=provider-a_nova&text=a', 'text=a&voice=provider-a_nova'],
    ['?text=%48i&x=b&x=a&x=', 'text=Hi&x=&x=a&x=b'],
    ['?text=a&empty&%C3%A9=1', 'empty=&text=a&%C3%A9=1'],
    ["?text=!'()*~-_.", "text=!'()*~-_."],
    ['?text=%21%27%28%29%2A', "text=!'()*"],
    ['?text=%F0%9F%98%80', 'text=%F0%9F%98%80'],
    ['?text=a&%EF%BD%9E=1&%F0%9F%98%80=2', 'text=a&%F0%9F%98%80=2&%EF%BD%9E=1'],
    ['?text=1%2B1%3D2%26', 'text=1%2B1%3D2%26'],
  ] as const) {
    const path = `${TTS}${url}`;
    assert.equal((await gateway.call(path, await sign(path, {}, { query }))).status, 200, url);
    const sent = await sign(path, {}, { query: `${query}&` });
    assert.equal((await gateway.call(path, sent)).status, 401, `another query than ${url}`);
  }
  const twice = `${TTS}?text=a&text=b`;
  const refused = await gateway.call(twice, await sign(twice));
  assert.deepEqual([refused.status, refused.json.error.code], [400, 'INVALID_REQUEST']);
});

test('R49: one signature covers one query, also with a second question mark', async (t) => {
  const gateway = await startPrepaidGateway(t);
  const { sign, balance } = await depositor(gateway, 10_000n);
  for (const [signedFor, sent, status] of [
    ['?text=a?b', '?text=a?b', 200],
    ['?text=a&x=?', '?text=a&x=?', 200],
    ['?text=a&??x=1', '?text=a&??x=1', 200],
    ['??x=1&text=a', '??x=1&text=a', 200],
    ['??x=1&text=a', '?x=1&text=a', 401],
    ['?x=?&text=%EF%BF%BDa', '?x=?&text=%EF%BF%BDa', 200],
    ['?x=?&text=%EF%BF%BDa', '?x=?&text=%FFa', 400],
    ['?x=?&text=%EF%BF%BDa', '?x=?&text=%ZZa', 400],
    ['?x=1&text=a?%FF', '?x=1&text=a?%FF', 400],
    ['#?text=a', '#?text=a', 400],
    ['?text=a', '?text=a#b', 400],
  ] as const) {
    const reply = await gateway.call(`${TTS}${sent}`, await sign(`${TTS}${signedFor}`));
    assert.equal(reply.status, status, `${sent}, signed for ${signedFor}`);
  }
  assert.deepEqual(
    gateway.upstream.requests.map(({ body }) => body?.input),
    ['a?b', 'a', 'a', 'a', '\ufffda'],
  );
  assert.equal(await balance(), 10_000n - 18n * 8n);
});

test('an absolute request target is the path and query that it holds (RFC 9112, 3.2.2)', async (t) => {
  const gateway = await startPrepaidGateway(t);
  const { sign, balance } = await depositor(gateway, 1000n);
  const path = `${TTS}?text=a`;
  const { headers = {} } = await sign(path);
  const outgoing = request(gateway.url, { path: `http://speech.example${path}`, headers }).end();
  const [incoming] = (await once(outgoing, 'response')) as [IncomingMessage];
  incoming.resume();
  assert.deepEqual([incoming.statusCode, await balance()], [200, 982n]);
});
