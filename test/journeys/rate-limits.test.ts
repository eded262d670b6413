import { randomUUID } from 'node:crypto';
import { type Test, test } from 'tap';
import { testDatabase } from '../support/database.ts';
import { controlDatabaseClock } from '../support/database-clock.ts';
import { type Gateway, type Reply, startGateway } from '../support/gateway.ts';
import { openAiError, testUpstream } from '../support/stub-upstream.ts';
import { until } from '../support/until.ts';

const speak = (gateway: Gateway, account?: string, headers: Record<string, string> = {}): Promise<Reply> =>
  gateway.call('/tts', {
    method: 'POST',
    json: { text: 'Hello world' },
    headers: { ...(account !== undefined && { 'x-credit-account': account }), ...headers },
  });

/** Limit, policy, remaining, reset, scope and Retry-After of an answer. */
const headersOf = ({ headers }: Reply) => [
  ...['limit', 'policy', 'remaining', 'reset', 'scope'].map((name) => headers.get(`x-ratelimit-${name}`)),
  headers.get('retry-after'),
];

/** A gateway with the limits of production, on a database whose clock the test moves. */
async function startLimited(t: Test, env: Record<string, string> = {}) {
  const { url: databaseUrl } = await testDatabase(t);
  const clock = await controlDatabaseClock(databaseUrl);
  const upstream = await testUpstream(t);
  const settings = { SPEECH_BASE_URL: upstream.url, RATE_LIMIT_MAX: '30', RATE_LIMIT_WINDOW_SECONDS: '60', ...env };
  const start = () => startGateway(t, settings, { databaseUrl });
  const gateway = await start();
  t.teardown(() => clock.close());
  return { gateway, upstream, clock, startAnother: start };
}

test('R39: two processes on one database share exactly 30 requests a minute', async (t) => {
  const { gateway, clock, startAnother } = await startLimited(t);
  const gateways = [gateway, await startAnother()];
  const replies = await Promise.all(Array.from({ length: 40 }, (_, index) => speak(gateways[index % 2] as Gateway)));
  t.equal(replies.filter((reply) => reply.status === 402).length, 30);
  t.equal(replies.filter((reply) => reply.status === 429).length, 10);
  await clock.advance('59.999999 seconds');
  for (const either of gateways) {
    const refused = await speak(either);
    t.equal(refused.status, 429);
    t.strictSame(headersOf(refused), ['30', '30;w=60', '0', '1', 'ip', '1']);
  }
  await clock.advance('0.000001 seconds');
  for (const either of gateways) t.equal((await speak(either)).status, 402);
});

test('R48: served, unpaid, failed and refused requests carry rate limit headers', async (t) => {
  const { gateway, upstream } = await startLimited(t, { RATE_LIMIT_MAX: '5', RATE_LIMIT_WINDOW_SECONDS: '20' });
  const account = await gateway.fund(500);
  const headers = (remaining: number, retryAfter: string | null = null) => [
    ...['5', '5;w=20', String(remaining), '20', 'account'],
    retryAfter,
  ];
  const served = await speak(gateway, account);
  t.equal(served.status, 200);
  t.strictSame(headersOf(served), headers(4));
  const served2 = await gateway.call('/tts?text=Hello', { headers: { 'x-credit-account': account } });
  t.equal(served2.status, 200);
  t.strictSame(headersOf(served2), headers(3));
  upstream.mode = openAiError(500);
  const failed = await speak(gateway, account);
  t.equal(failed.status, 502);
  t.strictSame(headersOf(failed), headers(2));
  upstream.mode = openAiError(503, 'busy', { 'retry-after': '7' });
  const unavailable = await speak(gateway, account);
  t.equal(unavailable.status, 503);
  t.strictSame(headersOf(unavailable), headers(1, '7'), "the upstream's Retry-After is no limit of ours");
  await gateway.db.updateTable('account').set({ balance_micro_usd: 0n }).where('id', '=', account).execute();
  const unpaid = await speak(gateway, account);
  t.equal(unpaid.status, 402);
  t.strictSame(headersOf(unpaid), headers(0));
  const refused = await speak(gateway, account);
  t.equal(refused.status, 429);
  t.strictSame(headersOf(refused), headers(0, '20'));
  const charges = await gateway.db.selectFrom('transfer').select('id').where('kind', '=', 'charge').execute();
  t.strictSame([charges.length, upstream.requests.length], [4, 4], 'it is neither charged nor spoken');
  t.equal(refused.json.error.code, 'RATE_LIMITED');
  t.strictSame(refused.json.error.details, { scope: 'account', limit: 5, windowSeconds: 20, retryAfterSeconds: 20 });
});

/** Of the ledger's own accounts, which are nobody's. */
const CONTRA = '00000000-0000-4000-8000-000000000001';

test("R13: unknown account ids share their address's bucket, known ones have their own", async (t) => {
  const { gateway } = await startLimited(t, { RATE_LIMIT_MAX: '3' });
  const [one, two] = [await gateway.fund(500), await gateway.fund(500)];
  const scopes = [];
  for (const id of [randomUUID(), 'not-a-uuid', CONTRA, randomUUID(), undefined]) {
    const reply = await speak(gateway, id);
    scopes.push(`${reply.status} ${reply.headers.get('x-ratelimit-scope')}`);
  }
  t.strictSame(scopes, ['402 ip', '402 ip', '402 ip', '429 ip', '429 ip']);
  for (const account of [one, two]) {
    t.equal((await speak(gateway, account)).status, 200);
    t.equal((await speak(gateway, account.toUpperCase())).headers.get('x-ratelimit-remaining'), '1');
  }
});

test('R7: an invalid request or one that mixes flows takes no slot', async (t) => {
  const { gateway } = await startLimited(t, { RATE_LIMIT_MAX: '1' });
  const broken = [
    await gateway.call('/tts', { method: 'POST', json: { text: '' } }),
    await gateway.call('/tts', { method: 'POST', json: { text: 'a', model: 'provider-a/none' } }),
    await gateway.call('/tts', { method: 'POST', json: { text: 'a', voice: 'none' } }),
    await gateway.call('/tts', { method: 'POST', json: { text: 'x'.repeat(4097) } }),
    await gateway.call('/tts', { method: 'POST', body: 'a', headers: { 'content-type': 'text/html' } }),
    await speak(gateway, undefined, { 'payment-signature': 'e30=' }),
    await speak(gateway, undefined, { 'x-x402-nonce': '1' }),
  ];
  const statuses = broken.map((reply) => reply.status);
  t.strictSame(statuses, [400, 400, 400, 413, 415, 400, 400]);
  for (const reply of broken) t.equal(reply.headers.get('x-ratelimit-scope'), null);
  t.equal((await speak(gateway)).status, 402);
  const refused = await speak(gateway);
  t.match(refused.json, { error: { message: /^The rate limit of 1 request within 60 seconds is reached\. / } });
  t.equal(refused.status, 429);
});

test('R48: an unmetered path takes no slot and has no rate limit headers', async (t) => {
  const { gateway } = await startLimited(t, { RATE_LIMIT_MAX: '1' });
  for (const path of [
    '/',
    '/docs',
    '/tts/models',
    '/tts/voices',
    '/tts/voices/a/sample',
    '/top-up',
    `/credits/${randomUUID()}`,
  ]) {
    t.equal((await gateway.call(path)).headers.get('x-ratelimit-limit'), null, path);
  }
  t.equal((await speak(gateway)).status, 402);
});

test("R39: a bucket belongs to the socket's or trusted proxy's address, IPv6 by /64", async (t) => {
  const { gateway } = await startLimited(t, { RATE_LIMIT_MAX: '1', TRUST_PROXY: '127.0.0.1' });
  const from = async (address: string) => (await speak(gateway, undefined, { 'x-forwarded-for': address })).status;
  t.strictSame([await from('192.0.2.1'), await from('198.51.100.1, 192.0.2.1')], [402, 429]);
  t.strictSame([await from('2001:db8::1'), await from('2001:db8::2'), await from('2001:db8:1::2')], [402, 429, 402]);
  t.strictSame([await from('::ffff:192.0.2.1'), await from('::ffff:192.0.2.9')], [429, 402]);
});

test('expired windows are deleted while the gateway runs', async (t) => {
  const { gateway, clock } = await startLimited(t, { RECONCILE_INTERVAL_MS: '100' });
  await speak(gateway);
  const rows = async () => (await gateway.db.selectFrom('rate_window').select('scope').execute()).length;
  t.equal(await rows(), 1);
  await clock.advance('3 minutes');
  await until(async () => (await rows()) === 0);
});
