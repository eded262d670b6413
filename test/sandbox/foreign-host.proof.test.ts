import assert from 'node:assert/strict';
import { once } from 'node:events';
import { type IncomingMessage, request } from 'node:http';
import { text } from 'node:stream/consumers';
import { test } from 'tap';
import { setUp } from './checkout-client.ts';
import { scene, skip } from './facilitator-scene.ts';

async function get(url: string, host: string): Promise<{ status: number | undefined; body: string }> {
  const sent = request(url, { headers: { host } }).end();
  const [response] = (await once(sent, 'response')) as [IncomingMessage];
  return { status: response.statusCode, body: await text(response) };
}

async function answersItsOwnHostOnly(url: string): Promise<void> {
  for (const host of ['evil.example', 'localhost.evil.example:80', '127.0.0.1.evil.example']) {
    const { status, body } = await get(url, host);
    assert.equal(status, 421, `${host} ${url}`);
    assert.match(body, /does not go by that host name[^\n]*$/);
  }
  for (const host of [new URL(url).host, 'localhost:1234', '[::1]']) {
    assert.notEqual((await get(url, host)).status, 421, `${host} ${url}`);
  }
}

test('checkout and dashboard are 421 for a name that an attacker has pointed at them', async (t) => {
  const { origin } = await setUp(t);
  for (const path of ['/dashboard', '/v1/checkout/sessions', '/nowhere']) await answersItsOwnHostOnly(origin + path);
});

test('the facilitator is 421 for a name that an attacker has pointed at it', { skip }, async (t) => {
  const { facilitator } = await scene(t);
  for (const path of ['/supported', '/nowhere']) await answersItsOwnHostOnly(facilitator.url + path);
});
