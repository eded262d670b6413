import assert from 'node:assert/strict';
import { once } from 'node:events';
import type { ServerResponse } from 'node:http';
import { connect } from 'node:net';
import { test } from 'tap';
import { startGateway } from '../support/gateway.ts';
import { silentMp3, startStubUpstream } from '../support/stub-upstream.ts';
import { until } from '../support/until.ts';

test('of one connection at most 16 requests are worked on at a time, and all of them are answered', async (t) => {
  const upstream = await startStubUpstream();
  t.teardown(() => upstream.close());
  const running: ServerResponse[] = [];
  let most = 0;
  upstream.mode = (_request, response) => {
    running.push(response);
    most = Math.max(most, running.length);
  };
  const gateway = await startGateway(t, { SPEECH_BASE_URL: upstream.url });
  const account = await gateway.fund(500);
  const socket = connect(Number(new URL(gateway.url).port), '127.0.0.1');
  t.teardown(() => socket.destroy());
  let received = '';
  socket.setEncoding('latin1').on('data', (text) => (received += text));
  const answers = () => received.split('HTTP/1.1 200 OK').length - 1;

  socket.write(`GET /tts?text=a HTTP/1.1\r\nhost: a\r\nx-credit-account: ${account}\r\n\r\n`.repeat(40));
  await until(() => running.length >= 16);
  // Whatever else was going to be begun has been by now.
  assert.equal((await gateway.call('/credits/00000000-0000-4000-8000-000000000001')).status, 404);
  assert.equal(running.length, 16);
  for (let answered = 0; answered < 40; answered += 1) {
    await until(() => running.length > 0);
    const response = running.shift();
    response?.writeHead(200, { 'content-type': 'audio/mpeg' }).end(silentMp3(100));
  }
  await until(() => answers() === 40);
  assert.equal(most, 16);
});

test('thousands of requests in one piece are answered in their order, with their bodies', async (t) => {
  const { url } = await startGateway(t);
  const socket = connect(Number(new URL(url).port), '127.0.0.1');
  t.teardown(() => socket.destroy());
  const chunks: Buffer[] = [];
  socket.on('data', (chunk) => chunks.push(chunk));
  const requests: string[] = [];
  const expected: number[] = [];
  for (let index = 0; index < 3000; index += 1) {
    const body = 'b'.repeat((index * index) % 3001);
    const [status, request] = (
      [
        [200, 'GET / HTTP/1.1\r\nhost: a\r\n\r\n'],
        [404, `GET /nowhere/${index} HTTP/1.1\r\nhost: a\r\n\r\n`],
        [
          400,
          `POST /tts HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\ncontent-length: ${body.length}\r\n\r\n${body}`,
        ],
        [405, 'DELETE /tts/models HTTP/1.1\r\nhost: a\r\n\r\n'],
        [417, 'GET / HTTP/1.1\r\nhost: a\r\nexpect: wonders\r\n\r\n'],
      ] as [number, string][]
    )[(index * 7 + Math.floor(index / 11)) % 5] as [number, string];
    requests.push(request);
    expected.push(status);
  }
  socket.write(`${requests.join('')}GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n`);
  await once(socket, 'close');
  const statuses = [
    ...Buffer.concat(chunks)
      .toString()
      .matchAll(/HTTP\/1\.1 (\d+) /g),
  ].map(([, status]) => Number(status));
  assert.deepEqual(statuses, [...expected, 200]);
});
