import assert from 'node:assert/strict';
import { once } from 'node:events';
import { type IncomingMessage, request } from 'node:http';
import { text } from 'node:stream/consumers';

/** A foreign page that has its name resolve to 127.0.0.1 sends that name. */
export async function answersItsOwnHostOnly(url: string): Promise<void> {
  const ask = async (host: string) => {
    const [response] = (await once(request(url, { headers: { host } }).end(), 'response')) as [IncomingMessage];
    return { status: response.statusCode, body: await text(response) };
  };
  for (const host of ['evil.example', 'localhost.evil.example:80', '127.0.0.1.evil.example']) {
    const { status, body } = await ask(host);
    assert.equal(status, 421, `${host} ${url}`);
    assert.match(body, /The host header is not the [^\n]*$/);
  }
  for (const host of [new URL(url).host, 'localhost:1234', '[::1]'])
    assert.notEqual((await ask(host)).status, 421, `${host} ${url}`);
}
