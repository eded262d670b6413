/** What the bridge refuses, since it spends money for whoever reaches it. */
import assert from 'node:assert/strict';
import { type IncomingMessage, type OutgoingHttpHeaders, request } from 'node:http';
import { connect } from 'node:net';
import { networkInterfaces } from 'node:os';
import { text as readAll } from 'node:stream/consumers';
import { test } from 'tap';
import { HELLO, openBridge } from '../support/bridge.ts';

interface Sent {
  readonly method?: string;
  readonly path?: string;
  readonly headers?: OutgoingHttpHeaders;
  readonly body?: string;
}

const BODY = JSON.stringify({ model: 'tts-1', voice: 'alloy', input: HELLO });
const JSON_TYPE = { 'content-type': 'application/json' };

/** Sends it as it is given, and tells status, headers and the error. */
async function send(origin: string, { method = 'POST', path = '/v1/audio/speech', headers = {}, body }: Sent) {
  const outgoing = request(`${origin}${path}`, { method, headers: { ...JSON_TYPE, ...headers } });
  outgoing.end(body ?? (method === 'POST' ? BODY : undefined));
  const incoming = await new Promise<IncomingMessage>((resolve, reject) => {
    outgoing.once('response', resolve).once('error', reject);
  });
  const text = await readAll(incoming);
  const error = text.startsWith('{') ? JSON.parse(text).error : undefined;
  return { status: incoming.statusCode, headers: incoming.headers, error };
}

test('other hosts, other origins and other addresses', async (t) => {
  const { origin, balance, upstream } = await openBridge(t);
  const { port } = new URL(origin);

  await t.test('a name that leads here by DNS is not answered', async () => {
    for (const host of [
      'evil.example',
      `evil.example:${port}`,
      '127.0.0.1',
      `127.0.0.1.evil.example:${port}`,
      'localhost:1',
    ]) {
      const { status, error } = await send(origin, { headers: { host } });
      assert.deepEqual([status, error.code], [421, 'wrong_host'], host);
    }
  });

  await t.test('names of this machine are', async () => {
    for (const host of [`127.0.0.1:${port}`, `localhost:${port}`, `LOCALHOST:${port}`, `[::1]:${port}`]) {
      assert.equal((await send(origin, { method: 'GET', path: '/v1/models', headers: { host } })).status, 200, host);
    }
  });

  await t.test('pages of other origins are not, and get no leave to ask', async () => {
    for (const headers of [
      { origin: 'https://evil.example' },
      { origin: 'null' },
      { origin: `http://localhost:${Number(port) + 1}` },
      { origin: `https://127.0.0.1:${port}` },
      { 'sec-fetch-site': 'cross-site' },
      { 'sec-fetch-site': 'same-site' },
    ]) {
      const { status, headers: answered, error } = await send(origin, { headers });
      assert.deepEqual([status, error.code], [403, 'cross_origin'], JSON.stringify(headers));
      assert.deepEqual(
        Object.keys(answered).filter((name) => name.startsWith('access-control')),
        [],
      );
    }
    const preflight = await send(origin, {
      method: 'OPTIONS',
      headers: { origin: 'https://evil.example', 'access-control-request-method': 'POST' },
    });
    assert.equal(preflight.status, 403);
  });

  await t.test('what a form of a page could send is not taken', async () => {
    for (const type of ['text/plain', 'application/x-www-form-urlencoded', '']) {
      const { status, error } = await send(origin, { headers: { 'content-type': type } });
      assert.deepEqual([status, error.code], [400, 'invalid_content_type'], type);
    }
  });

  await t.test('it listens on loopback alone', async () => {
    const outside = Object.values(networkInterfaces())
      .flat()
      .find((each) => each?.family === 'IPv4' && !each.internal);
    if (!outside) return;
    const socket = connect(Number(port), outside.address);
    await new Promise<void>((resolve, reject) => {
      socket.once('error', () => resolve()).once('connect', () => reject(new Error('It answers outside.')));
    });
  });

  await t.test('bodies that are no request, and too long ones', async () => {
    for (const body of ['', '[]', '"text"', '{', 'null']) {
      const { status, error } = await send(origin, { body });
      assert.deepEqual([status, error.code], [400, 'invalid_json'], body);
    }
    const long = JSON.stringify({ input: 'x'.repeat(300_000) });
    assert.equal((await send(origin, { body: long })).status, 413);
  });

  await t.test('anything else is not found', async () => {
    for (const [method, path] of [
      ['GET', '/v1/audio/speech'],
      ['POST', '/v1/chat/completions'],
      ['DELETE', '/v1/models/tts-1'],
      ['GET', '/'],
      ['GET', '//evil.example/v1/models'],
    ]) {
      const { status, error } = await send(origin, { method: method as string, path: path as string });
      assert.deepEqual([status, error.code, error.type], [404, 'unknown_url', 'invalid_request_error'], path);
    }
  });

  assert.equal(await balance(), 1_000_000n);
  assert.equal(upstream.requests.length, 0);
});

test('with a token, nothing is told without it', async (t) => {
  const { origin } = await openBridge(t, { bridge: { token: 'sesame' } });
  const get = (authorization?: string) =>
    send(origin, { method: 'GET', path: '/v1/models', headers: authorization === undefined ? {} : { authorization } });
  for (const wrong of [undefined, 'Bearer', 'Bearer sesam', 'Bearer sesame2', 'Basic sesame', 'sesame']) {
    const { status, error } = await get(wrong);
    assert.deepEqual([status, error.code], [401, 'invalid_api_key'], wrong);
  }
  assert.equal((await get('Bearer sesame')).status, 200);
  assert.equal((await get('bearer sesame')).status, 200);
});
