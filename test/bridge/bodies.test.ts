/** The bridge reads request bodies as strictly as the gateway does. */
import assert from 'node:assert/strict';
import { test } from 'tap';
import { HELLO, openBridge } from '../support/bridge.ts';

const ORDER = { model: 'tts-1', voice: 'alloy' };
const JSON_TYPE = 'application/json';
const bytes = (input: Uint8Array): Buffer =>
  Buffer.concat([Buffer.from(`${JSON.stringify(ORDER).slice(0, -1)},"input":"`), input, Buffer.from('"}')]);

test('bodies in another charset, coding or type are refused, and cost nothing', async (t) => {
  const { origin, upstream, calls } = await openBridge(t);
  const send = async (headers: Record<string, string>, body: Uint8Array) => {
    const response = await fetch(`${origin}/v1/audio/speech`, { method: 'POST', headers, body: new Uint8Array(body) });
    const { error } = response.ok ? { error: {} } : ((await response.json()) as { error: Record<string, unknown> });
    return { status: response.status, ...error } as { status: number; code?: string; message?: string };
  };
  const hello = bytes(Buffer.from(HELLO));
  const refused: [headers: Record<string, string>, body: Uint8Array, status: number, message: RegExp][] = [
    ...['iso-8859-1', 'utf-16', 'latin1', '"windows-1252"'].map((charset): (typeof refused)[number] => [
      { 'content-type': `${JSON_TYPE}; charset=${charset}` },
      hello,
      415,
      /charset .*UTF-8/,
    ]),
    [{ 'content-type': JSON_TYPE, 'content-encoding': 'gzip' }, hello, 415, /content-encoding/],
    [{ 'content-type': 'application/json-patch+json' }, hello, 400, /application\/json/],
    [{ 'content-type': JSON_TYPE }, bytes(Buffer.from([0x68, 0xff])), 400, /UTF-8/],
    [{ 'content-type': JSON_TYPE }, bytes(Buffer.from('Grüezi', 'latin1')), 400, /UTF-8/],
    [{ 'content-type': JSON_TYPE }, Buffer.from(hello.toString(), 'utf16le'), 400, /JSON/],
    [{ 'content-type': JSON_TYPE }, hello.subarray(0, -1), 400, /JSON/],
  ];
  for (const [headers, body, status, message] of refused) {
    const answer = await send(headers, body);
    assert.equal(answer.status, status, JSON.stringify(headers));
    assert.match(answer.message ?? '', message);
  }
  assert.equal(upstream.requests.length, 0);

  const read: [type: string, body: Uint8Array][] = [
    [`${JSON_TYPE}; charset=utf-8`, hello],
    [`${JSON_TYPE}; charset="UTF-8"`, hello],
    [`${JSON_TYPE.toUpperCase()};charset=utf8`, hello],
    [JSON_TYPE, Buffer.concat([Buffer.from([0xef, 0xbb, 0xbf]), hello])],
  ];
  for (const [type, body] of read) {
    assert.deepEqual((await send({ 'content-type': type }, body)).status, 200, type);
    assert.equal(upstream.requests.at(-1)?.body?.input, HELLO);
  }
  assert.equal(calls.filter(({ end }) => end === 'refused').length, refused.length);
});
