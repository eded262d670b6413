import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { test } from 'tap';
import { startGateway } from '../support/gateway.ts';
import { until } from '../support/until.ts';

const REQUEST = 'GET / HTTP/1.1\r\nhost: a\r\n\r\n';

test('GET /openapi.json, /docs and / answer the same each time, and HEAD with their length', async (t) => {
  const { call } = await startGateway(t);
  for (const path of ['/openapi.json', '/docs', '/']) {
    const [first, second] = [await call(path), await call(path)];
    assert.equal(first.status, 200);
    assert.deepEqual(second.bytes, first.bytes);
    const head = await call(path, { method: 'HEAD' });
    assert.equal(head.headers.get('content-length'), String(first.bytes.length));
  }
});

test('MAX_CONNECTIONS: what is over it is closed at once, and a place that is left is free again', async (t) => {
  const { url } = await startGateway(t, { MAX_CONNECTIONS: '2' });
  const open = () => {
    const socket = connect(Number(new URL(url).port), '127.0.0.1');
    socket.on('error', () => {});
    t.teardown(() => socket.destroy());
    return socket;
  };
  const answers = async (socket: Socket): Promise<boolean> => {
    if (socket.destroyed) return false;
    socket.write(REQUEST);
    return Promise.race([once(socket, 'data').then(() => true), once(socket, 'close').then(() => false)]);
  };
  const [first, second, third] = [open(), open(), open()];
  assert.equal(await answers(first), true);
  assert.equal(await answers(second), true);
  assert.equal(await answers(third), false);
  first.destroy();
  await until(() => answers(open()));
});
