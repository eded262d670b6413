import assert from 'node:assert/strict';
import { test } from 'tap';
import { startGateway } from '../support/gateway.ts';

const PATHS = ['/metrics', '/readyz', '/livez', '/nowhere'];

test("the operators' listener answers to addresses, localhost and the names of ADMIN_HOST, whatever the port", async (t) => {
  const { app } = await startGateway(t, { ADMIN_HOST: '127.0.0.1, Metrics.internal' });
  for (const host of [
    '127.0.0.1',
    '127.0.0.1:9000',
    '10.1.2.3:80',
    '[::1]',
    '[::1]:9000',
    'localhost',
    'LOCALHOST:9000',
    'metrics.internal:9000',
    'METRICS.INTERNAL',
  ]) {
    for (const url of PATHS) {
      const { statusCode } = await app.admin.inject({ url, headers: { host } });
      assert.equal(statusCode, url === '/nowhere' ? 404 : 200, `${host} ${url}`);
    }
  }
});

test("a name that an attacker has pointed at the operators' listener is 421, with nothing of what it knows", async (t) => {
  const { app } = await startGateway(t, { ADMIN_HOST: '127.0.0.1,metrics.internal' });
  for (const host of [
    'evil.example',
    'evil.example:9000',
    'localhost.evil.example',
    '127.0.0.1.evil.example',
    'x.metrics.internal',
    'metrics.internal.',
    '127.1',
    '::1',
    '[evil.example]',
    '[127.0.0.1]',
  ]) {
    for (const url of PATHS) {
      const { statusCode, headers, body } = await app.admin.inject({ url, headers: { host } });
      assert.equal(statusCode, 421, `${host} ${url}`);
      assert.match(String(headers['content-type']), /^application\/json/);
      const { error } = JSON.parse(body);
      assert.deepEqual([error.code, error.details.field], ['INVALID_REQUEST', 'host']);
    }
  }
});
