import assert from 'node:assert/strict';
import { test } from 'tap';
import { testDatabase } from '../support/database.ts';
import { startGateway } from '../support/gateway.ts';
import { startTcpProxy } from '../support/tcp-proxy.ts';

test('a database that accepts and never answers is 503, never a hang', async (t) => {
  const { url } = await testDatabase(t);
  const proxy = await startTcpProxy(t, url);
  const gateway = await startGateway(t, {}, { databaseUrl: proxy.url });
  const account = await gateway.fund(500);
  proxy.freeze();
  const launcher = gateway.call(`/top-up?account=${account}`);
  const replies = await Promise.all([
    gateway.call(`/credits/${account}`),
    gateway.call('/tts?text=hello', { headers: { 'x-credit-account': account } }),
    gateway.call(`/top-up/status?account=${account}`),
  ]);
  for (const reply of replies) {
    assert.equal(reply.status, 503);
    assert.equal(reply.json.error.code, 'CONFIG_ERROR');
  }
  assert.equal((await launcher).status, 200, 'the launcher needs no database');
  proxy.restore();
  assert.equal((await gateway.call(`/credits/${account}`)).status, 200);
});
