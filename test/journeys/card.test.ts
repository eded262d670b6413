import { once } from 'node:events';
import { request } from 'node:http';
import { x402Client } from '@x402/core/client';
import { decodePaymentRequiredHeader } from '@x402/core/http';
import { ExactEvmScheme } from '@x402/evm/exact/client';
import { t, test } from 'tap';
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts';
import { audit } from '../../src/ledger/audit.ts';
import { booksClosed } from '../support/books.ts';
import { BASE_URL, startGateway } from '../support/gateway.ts';
import { silentMp3 } from '../support/silent-audio.ts';
import { ControlledStream, mp3 } from '../support/stub-upstream.ts';
import { bench, say } from './card.ts';

/** Of the tests that need no settings of their own. */
const { gateway, upstream } = await bench(t);

test('R3: a request costs ceil(characters x rate), 198 micro-USD for "Hello world"', async (t) => {
  const account = await gateway.fund(500);
  const reply = await gateway.call(
    '/tts',
    say(account, { text: '  Hello world\n', voice: 'provider-a_nova', speed: 1.5 }),
  );
  t.strictSame([reply.status, reply.headers.get('content-type')], [200, 'audio/mpeg']);
  t.equal(reply.headers.get('x-credit-account'), account);
  t.equal(reply.headers.get('x-credit-balance'), '4999802');
  t.strictSame([reply.headers.get('cache-control'), await gateway.balance(account)], ['private, no-store', 4_999_802n]);
  const sent = { model: 'tts-1', input: 'Hello world', voice: 'nova', speed: 1.5, response_format: 'mp3' };
  t.strictSame(upstream.requests.at(-1)?.body, sent);
  const credits = await gateway.call(`/credits/${account}`);
  t.strictSame(credits.json, { accountId: account, balanceMicroUsd: 4999802, balanceUsd: '4.999802', currency: 'USD' });
  t.strictSame(await audit(gateway.db), []);
});

test('GET and text/plain requests synthesize like JSON', async (t) => {
  const headers = { 'x-credit-account': await gateway.fund(500) };
  const query = '/tts?text=Hello+w%C3%B6rld&model=provider-a/tts-1-hd&voice=provider-a_ash&speed=0.5';
  t.equal((await gateway.call(query, { headers })).status, 200);
  const plain = await gateway.call('/tts?model=provider-a/tts-1-hd&voice=provider-a_ash&speed=0.5', {
    method: 'POST',
    headers: { ...headers, 'content-type': 'text/plain' },
    body: 'Hello wörld',
  });
  t.equal(plain.status, 200);
  t.equal(plain.headers.get('x-credit-balance'), String(5_000_000 - 2 * 11 * 36));
  t.strictSame(upstream.requests.at(-2)?.body, upstream.requests.at(-1)?.body);
});

test('R12: a missing, unknown or underfunded account is 402 and charges nothing', async (t) => {
  const account = await gateway.fund(500);
  const accounts = async () =>
    (await gateway.db.selectFrom('account').select('id').where('kind', '=', 'card').execute()).length;
  const before = [await accounts(), upstream.requests.length];
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
    t.equal(reply.status, 402, reason);
    t.equal(reply.json.error.details.reason, reason);
  }
  t.equal(await gateway.balance(account), 197n);
  t.strictSame([await accounts(), upstream.requests.length], before, 'naming an unknown account makes none');
  await gateway.db.updateTable('account').set({ balance_micro_usd: 5_000_000n }).where('id', '=', account).execute();
});

test('R11, R46: the 402 names the amount and carries the challenge in both headers', async (t) => {
  for (const call of [say(undefined), { method: 'GET' }]) {
    const reply = await gateway.call(call.method === 'GET' ? '/tts?text=Hello' : '/tts', call);
    const body = reply.json;
    t.strictSame([body.amount, body.currency, body.topUpUrl], ['500', 'usd', `${BASE_URL}/top-up?amount=500`]);
    t.strictSame([body.creditAccount.name, reply.headers.get('cache-control')], ['x-credit-account', 'no-store']);
    const required = decodePaymentRequiredHeader(reply.headers.get('payment-required') ?? '');
    const { x402Version, resource, accepts, ...members } = required;
    t.strictSame([x402Version, resource, accepts], [2, { url: `${BASE_URL}/tts` }, []]);
    t.strictSame(members, body);
    const payer = new x402Client().register(
      'eip155:8453',
      new ExactEvmScheme(privateKeyToAccount(generatePrivateKey())),
    );
    await t.rejects(payer.createPaymentPayload(required), /No network\/scheme registered/);
    const challenge = reply.headers.get('www-authenticate') ?? '';
    t.match(
      challenge,
      /^Payment id="[^"]+", realm="speechgate\.test", method="credits", intent="charge", request="[\w-]+", expires="[^"]+"$/,
    );
    const parameters = Object.fromEntries(
      [...challenge.matchAll(/(\w+)="([^"]*)"/g)].map((match) => [match[1], match[2]]),
    );
    t.equal(
      Buffer.from(parameters.request as string, 'base64url').toString(),
      `{"amount":"500","currency":"usd","topUpUrl":"${BASE_URL}/top-up?amount=500&challenge=${parameters.id}"}`,
    );
    t.ok(Date.parse(parameters.expires as string) > Date.now());
    t.equal(body.error.details.challengeId, parameters.id);
  }
});

test('R47: a flow without its settings is off and answers 503', async (t) => {
  const off = await startGateway(t, { STRIPE_SECRET_KEY: '', STRIPE_API_BASE: '' });
  for (const reply of [await off.call('/tts?text=a'), await off.call('/top-up', { method: 'POST' })])
    t.strictSame([reply.status, reply.json.error.code], [503, 'CONFIG_ERROR']);
  const reply = await (await startGateway(t, { SPEECH_BASE_URL: '' })).call('/tts?text=a');
  t.strictSame([reply.status, reply.json.error.code], [503, 'TTS_PROVIDER_NOT_CONFIGURED']);
});

test('R55: audio streams while the upstream sends, and the hold is captured at the end', async (t) => {
  const account = await gateway.fund(500);
  const drip = new ControlledStream();
  upstream.mode = drip.mode;
  const audio = silentMp3(2000);
  const outgoing = request(`${gateway.url}/tts?text=Hello+world`, { headers: { 'x-credit-account': account } });
  outgoing.end();
  await drip.opened;
  drip.write(audio.subarray(0, 8000));
  const [incoming] = await once(outgoing, 'response');
  const [first] = await once(incoming, 'data');
  t.ok(first.length > 0);
  const charges = gateway.db.selectFrom('transfer').select('state').where('debit_account_id', '=', account);
  t.strictSame(await charges.execute(), [{ state: 'pending' }]);
  const chunks = [first];
  incoming.on('data', (chunk: Buffer) => chunks.push(chunk));
  drip.write(audio.subarray(8000));
  drip.end();
  await once(incoming, 'end');
  t.strictSame(Buffer.concat(chunks), Buffer.from(audio));
  await booksClosed(gateway.db);
  t.equal(await gateway.balance(account), 4_999_802n);
});

test('R55: a caller who disconnects at any point of the response is charged', async (t) => {
  const account = await gateway.fund(500);
  const audio = silentMp3(2000);
  let balance = 5_000_000n;
  for (const share of [0, 0.5, 1]) {
    const drip = new ControlledStream();
    upstream.mode = drip.mode;
    const outgoing = request(`${gateway.url}/tts?text=Hello+world`, { headers: { 'x-credit-account': account } });
    outgoing.on('error', () => {});
    outgoing.end();
    await drip.opened;
    const sent = Math.floor(audio.length * share);
    if (sent > 0) {
      drip.write(audio.subarray(0, sent));
      const [incoming] = await once(outgoing, 'response');
      incoming.on('error', () => {});
      for (let received = 0; received < sent - 1; ) received += (await once(incoming, 'data'))[0].length;
    }
    outgoing.destroy();
    drip.write(audio.subarray(sent));
    drip.end();
    balance -= 198n;
    await booksClosed(gateway.db);
    t.equal(await gateway.balance(account), balance, `gone at ${share * 100} %`);
    t.equal(await upstream.requests.at(-1)?.closed, 'complete', 'synthesis was read to the end');
  }
  t.strictSame(await audit(gateway.db), []);
});

test('R55: a caller who does not read never slows the upstream', async (t) => {
  const account = await gateway.fund(500);
  upstream.mode = mp3(20 * 60 * 1000);
  const outgoing = request(`${gateway.url}/tts?text=Hello+world`, { headers: { 'x-credit-account': account } });
  outgoing.on('error', () => {});
  outgoing.end();
  const [incoming] = await once(outgoing, 'response');
  incoming.pause();
  t.equal(await upstream.requests.at(-1)?.closed, 'complete');
  outgoing.destroy();
  await booksClosed(gateway.db);
  t.equal(await gateway.balance(account), 4_999_802n);
  t.strictSame(await audit(gateway.db), []);
});
