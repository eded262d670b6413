import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:http';
import { type AddressInfo, connect } from 'node:net';
import { text } from 'node:stream/consumers';
import { test } from 'tap';
import { answerClientError } from '../../src/http/client-errors.ts';

const BODY_TO_COME = 'host: a\r\ncontent-length: 9\r\n\r\nhalf';

const CASES: readonly { readonly title: string; readonly sent: string; readonly statuses: readonly number[] }[] = [
  { title: 'half a head', sent: 'GET /answered HTTP/1.1\r\nho', statuses: [408] },
  { title: 'half a body that is waited for', sent: `POST /read HTTP/1.1\r\n${BODY_TO_COME}`, statuses: [408] },
  {
    title: 'half a body of a request that is answered already',
    sent: `GET /answered HTTP/1.1\r\n${BODY_TO_COME}`,
    statuses: [200],
  },
  {
    title: 'half a head after a request that is answered',
    sent: 'GET /answered HTTP/1.1\r\nhost: a\r\n\r\nGET /answered HTTP/1.1\r\nho',
    statuses: [200, 408],
  },
];

test('a request that does not arrive in time gets one answer, and none where it has got one', async (t) => {
  const server = createServer({ requestTimeout: 100, headersTimeout: 100, connectionsCheckingInterval: 20 });
  server.on('request', (request, response) => {
    if (request.url === '/answered') response.end('done');
    else request.resume();
  });
  server.on('clientError', (error, socket) => answerClientError(error, socket as never, () => 'a trace id'));
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.teardown(() => void server.close());
  for (const { title, sent, statuses } of CASES) {
    const client = connect((server.address() as AddressInfo).port, '127.0.0.1');
    client.write(sent);
    const answers = (await text(client)).matchAll(/HTTP\/1\.1 (\d+) /g);
    assert.deepEqual(
      [...answers].map(([, status]) => Number(status)),
      statuses,
      title,
    );
  }
});
