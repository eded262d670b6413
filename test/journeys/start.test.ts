import assert from 'node:assert/strict';
import { once } from 'node:events';
import { request } from 'node:http';
import { test } from 'tap';
import { openDatabase } from '../../src/db/database.ts';
import { audit } from '../../src/ledger/audit.ts';
import { freePort } from '../../src/sandbox/free-port.ts';
import { testCheckout } from '../support/checkout.ts';
import { startChild } from '../support/child.ts';
import { testDatabase } from '../support/database.ts';
import { send } from '../support/gateway.ts';
import { ControlledStream, silentMp3, testUpstream } from '../support/stub-upstream.ts';

test('R47: npm start names every bad setting at once, with the fix, and exits 78', async (t) => {
  const child = startChild(t, 'src/main.ts', {
    PORT: '99999',
    BASE_URL: 'nonsense',
    SPEECH_API_KEY: 'key',
    STRIPE_API_BASE: 'http://127.0.0.1:1',
    TRUST_PROXY: '1',
    CATALOG_FILE: '/nowhere/catalog.json',
    RATE_LIMT_MAX: '5',
  });
  const [code] = await once(child.process, 'exit');
  assert.equal(code, 78);
  for (const name of [
    'PORT',
    'BASE_URL',
    'DATABASE_URL',
    'SPEECH_BASE_URL',
    'STRIPE_SECRET_KEY',
    'TRUST_PROXY',
    'CATALOG_FILE',
  ]) {
    assert.match(child.output(), new RegExp(`^${name} .+\\. .+`, 'm'), `${name} is named with its fix`);
  }
  assert.match(child.output(), /^Unknown setting RATE_LIMT_MAX is ignored\. Did you mean RATE_LIMIT_MAX\?$/m);
});

test('npm start serves paid speech, and SIGTERM leaves no hold open', async (t) => {
  const { url: databaseUrl } = await testDatabase(t);
  const upstream = await testUpstream(t);
  const checkout = await testCheckout(t);
  const port = await freePort();
  const baseUrl = `http://127.0.0.1:${port}`;
  const child = startChild(t, 'src/main.ts', {
    PORT: String(port),
    DATABASE_URL: databaseUrl,
    SPEECH_BASE_URL: upstream.url,
    SPEECH_API_KEY: 'upstream-key',
    ...checkout.env,
  });
  await child.printed(new RegExp(`listens on ${baseUrl}`));

  const opened = await send(baseUrl, '/top-up', { method: 'POST' });
  assert.equal(opened.status, 303);
  const back = new URL(await checkout.pay(opened.headers.get('location') ?? ''));
  const page = await send(baseUrl, `${back.pathname}${back.search}`);
  const account = /<code>([0-9a-f-]{36})<\/code>/.exec(page.text)?.[1] ?? '';
  const headers = { 'x-credit-account': account };
  assert.equal((await send(baseUrl, '/tts?text=Hello+world', { headers })).status, 200);
  assert.equal(upstream.requests[0]?.headers.authorization, 'Bearer upstream-key');

  const drip = new ControlledStream();
  upstream.mode = drip.mode;
  const running = send(baseUrl, '/tts?text=Hello+world', { headers });
  const left = request(`${baseUrl}/tts?text=Hello+world`, { headers });
  left.on('error', () => {});
  await drip.opened;
  upstream.mode = (_request, response) => setTimeout(() => response.end(), 300);
  left.end();
  await upstream.waitForRequests(3);
  left.destroy();
  const stopped = child.stop('SIGTERM');
  drip.write(silentMp3(500));
  drip.end();
  assert.equal((await running).status, 200, 'what is running is finished');
  assert.equal(await stopped, 0);
  await assert.rejects(send(baseUrl, '/'), /ECONNREFUSED/);

  const db = openDatabase(databaseUrl, { maxConnections: 1 });
  t.teardown(() => db.destroy());
  assert.deepEqual(await db.selectFrom('transfer').select('id').where('state', '=', 'pending').execute(), []);
  assert.deepEqual(await audit(db), []);
  assert.doesNotMatch(child.output(), new RegExp(account), 'R40: no account id reaches the log');
  assert.doesNotMatch(child.output(), /Hello/, 'R40: no text reaches the log');
});
