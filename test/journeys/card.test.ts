import assert from 'node:assert/strict';
import { buffer } from 'node:stream/consumers';
import { x402Client } from '@x402/core/client';
import { decodePaymentRequiredHeader } from '@x402/core/http';
import { ExactEvmScheme } from '@x402/evm/exact/client';
import { test } from 'tap';
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts';
import { audit } from '../../src/ledger/audit.ts';
import { askForFlowingAudio } from '../support/flowing-audio.ts';
import { BASE_URL, startGateway } from '../support/gateway.ts';
import { Drip, silentMp3 } from '../support/stub-upstream.ts';
import { bench, say } from './card.ts';

test('R3: a request costs ceil(characters x rate), 198 micro-USD for "Hello world"', async (t) => {
  const { gateway, upstream } = await bench(t);
  const account = await gateway.fund(500);
  const reply = await gateway.call(
    '/tts',
    say(account, { text: '  Hello world\n', voice: 'provider-a_nova', speed: 1.5 }),
  );
  assert.equal(reply.status, 200);
  assert.equal(reply.headers.get('content-type'), 'audio/mpeg');
  assert.equal(reply.headers.get('x-credit-account'), account);
  assert.equal(reply.headers.get('x-credit-balance'), '4999802');
  assert.equal(reply.headers.get('cache-control'), 'private, no-store');
  assert.equal(await gateway.balance(account), 4_999_802n);
  const sent = { model: 'tts-1', input: 'Hello world', voice: 'nova', speed: 1.5, response_format: 'mp3' };
  assert.deepEqual(upstream.requests[0]?.body, sent);
  const credits = await gateway.call(`/credits/${account}`);
  assert.deepEqual(credits.json, {
    accountId: account,
    balanceMicroUsd: 4999802,
    balanceUsd: '4.999802',
    currency: 'USD',
  });
  assert.deepEqual(await audit(gateway.db), []);
});

test('GET and text/plain speak as JSON does', async (t) => {
  const { gateway, upstream } = await bench(t);
  const account = await gateway.fund(500);
  const headers = { 'x-credit-account': account };
  const query = '/tts?text=Hello+w%C3%B6rld&model=provider-a/tts-1-hd&voice=provider-a_ash&speed=0.5';
  assert.equal((await gateway.call(query, { headers })).status, 200);
  const plain = await gateway.call('/tts?model=provider-a/tts-1-hd&voice=provider-a_ash&speed=0.5', {
    method: 'POST',
    headers: { ...headers, 'content-type': 'text/plain' },
    body: 'Hello wörld',
  });
  assert.equal(plain.status, 200);
  assert.equal(plain.headers.get('x-credit-balance'), String(5_000_000 - 2 * 11 * 36));
  assert.deepEqual(upstream.requests[0]?.body, upstream.requests[1]?.body);
});

test('R12: no account, an unknown account and too little balance are all 402, and charge nothing', async (t) => {
  const { gateway, upstream } = await bench(t);
  const account = await gateway.fund(500);
  await gateway.db.updateTable('account').set({ balance_micro_usd: 197n }).where('id', '=', account).execute();
  const cases: [string | undefined, string][] = [
    [undefined, 'no_account'],
    ['', 'no_account'],
    ['6b1f0f9e-0000-4000-8000-000000000000', 'unknown_account'],
    ['not a uuid', 'unknown_account'],
    ['00000000-0000-4000-8000-000000000002', 'unknown_account'],
    [account, 'insufficient_funds'],
  ];
  for (const [named, reason] of cases) {
    const reply = await gateway.call('/tts', say(named));
    assert.equal(reply.status, 402, reason);
    assert.equal(reply.json.error.details.reason, reason);
  }
  assert.equal(upstream.requests.length, 0);
  assert.equal(await gateway.balance(account), 197n);
  const { count } = await gateway.db
    .selectFrom('account')
    .select(({ fn }) => fn.countAll<bigint>().as('count'))
    .where('kind', '=', 'card')
    .executeTakeFirstOrThrow();
  assert.equal(count, 1n, 'naming an unknown account makes no account');
});

test('R11, R46: the 402 names the amount, and carries the challenge in both headers', async (t) => {
  const { gateway } = await bench(t);
  for (const call of [say(undefined), { method: 'GET' }]) {
    const reply = await gateway.call(call.method === 'GET' ? '/tts?text=Hello' : '/tts', call);
    const body = reply.json;
    assert.equal(body.amount, '500');
    assert.equal(body.currency, 'usd');
    assert.equal(body.topUpUrl, `${BASE_URL}/top-up?amount=500`);
    assert.equal(body.creditAccount.name, 'x-credit-account');
    assert.equal(reply.headers.get('cache-control'), 'no-store');
    const required = decodePaymentRequiredHeader(reply.headers.get('payment-required') ?? '');
    const { x402Version, resource, accepts, ...members } = required;
    assert.deepEqual([x402Version, resource, accepts], [2, { url: `${BASE_URL}/tts` }, []]);
    assert.deepEqual(members, body);
    const payer = new x402Client().register(
      'eip155:8453',
      new ExactEvmScheme(privateKeyToAccount(generatePrivateKey())),
    );
    await assert.rejects(payer.createPaymentPayload(required), /No network\/scheme registered/);
    const challenge = reply.headers.get('www-authenticate') ?? '';
    assert.match(
      challenge,
      /^Payment id="[^"]+", realm="speechgate\.test", method="credits", intent="charge", request="[\w-]+", expires="[^"]+"$/,
    );
    const parameters = Object.fromEntries(
      [...challenge.matchAll(/(\w+)="([^"]*)"/g)].map((match) => [match[1], match[2]]),
    );
    assert.equal(
      Buffer.from(parameters.request as string, 'base64url').toString(),
      `{"amount":"500","currency":"usd","topUpUrl":"${BASE_URL}/top-up?amount=500&challenge=${parameters.id}"}`,
    );
    assert.ok(Date.parse(parameters.expires as string) > Date.now());
    assert.equal(body.error.details.challengeId, parameters.id);
  }
});

test('50 parallel requests on an account that can pay for 20: exactly 20 are served', async (t) => {
  const { gateway, upstream } = await bench(t);
  const account = await gateway.fund(500);
  const large = say(account, { text: 'x'.repeat(4096), model: 'provider-a/tts-1-hd' });
  await Promise.all(Array.from({ length: 33 }, () => gateway.call('/tts', large)));
  const rest = Number(await gateway.balance(account));
  const characters = Math.floor(rest / 18 / 20);
  const served = upstream.requests.length;
  const replies = await Promise.all(
    Array.from({ length: 50 }, () => gateway.call('/tts', say(account, { text: 'x'.repeat(characters) }))),
  );
  assert.equal(replies.filter((reply) => reply.status === 200).length, 20);
  assert.equal(replies.filter((reply) => reply.status === 402).length, 30);
  assert.equal(upstream.requests.length - served, 20, 'the provider is called for what was paid only');
  assert.equal(Number(await gateway.balance(account)), rest - 20 * characters * 18);
  assert.deepEqual(await audit(gateway.db), []);
});

test('a hold that was lost is not delivered', async (t) => {
  const { gateway, upstream } = await bench(t);
  const account = await gateway.fund(500);
  const loseHolds = () => gateway.db.updateTable('transfer').set({ fence: 2 }).where('state', '=', 'pending').execute();

  await t.test('audio that is whole at once is refused', async () => {
    const drip = new Drip();
    upstream.mode = drip.mode;
    const reply = gateway.call('/tts', say(account));
    await drip.opened;
    await loseHolds();
    drip.write(silentMp3(500));
    drip.end();
    const { status, json } = await reply;
    assert.equal(status, 503);
    assert.equal(json.error.code, 'TTS_UNAVAILABLE');
    assert.match(json.error.message, /Nothing was charged/);
    assert.deepEqual(json.error.details, {
      transient: true,
      payment: { state: 'not_charged', amountMicroUsd: 0 },
    });
  });

  await t.test('audio that flows is broken off', async () => {
    const drip = new Drip();
    upstream.mode = drip.mode;
    const incoming = await askForFlowingAudio(gateway.url, account, drip);
    await loseHolds();
    drip.end();
    await assert.rejects(buffer(incoming), /aborted|ECONNRESET/);
  });
});

test('R47: a flow whose settings are absent is off, and says so', async (t) => {
  const off = await startGateway(t, { STRIPE_SECRET_KEY: '', STRIPE_API_BASE: '' });
  for (const reply of [await off.call('/tts?text=a'), await off.call('/top-up', { method: 'POST' })]) {
    assert.equal(reply.status, 503);
    assert.equal(reply.json.error.code, 'CONFIG_ERROR');
  }
  const mute = await startGateway(t, { SPEECH_BASE_URL: '' });
  const reply = await mute.call('/tts?text=a');
  assert.equal(reply.status, 503);
  assert.equal(reply.json.error.code, 'TTS_PROVIDER_NOT_CONFIGURED');
});
