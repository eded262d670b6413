import assert from 'node:assert/strict';
import { test } from 'tap';
import { catalogFile } from '../support/catalog-file.ts';
import { testChain, wallet } from '../support/chain.ts';
import { testCheckout } from '../support/checkout.ts';
import { type Gateway, startGateway } from '../support/gateway.ts';
import { mp3, openAiError, startStubUpstream } from '../support/stub-upstream.ts';
import { payFor, startX402Gateway } from '../support/x402.ts';

const { chain, skip } = await testChain();
const ERROR_LEVEL = 50;

/** The settings that errors in the log name, and how often the metric counts each of those in use. */
async function refusals({ app, log }: Gateway): Promise<{ logged: unknown[]; counted: Record<string, number> }> {
  const scrape = (await app.admin.inject({ url: '/metrics', headers: { host: 'localhost' } })).body;
  const samples = [...scrape.matchAll(/^speechgate_refused_credentials_total\{setting="(\w+)"\} (\d+)$/gm)];
  return {
    logged: log.filter(({ level, setting }) => level === ERROR_LEVEL && setting).map(({ setting }) => setting),
    counted: Object.fromEntries(samples.map(([, setting, count]) => [setting, Number(count)])),
  };
}

const speak = async (gateway: Gateway, account: string): Promise<number> => {
  const call = { method: 'POST', json: { text: 'Hello world' }, headers: { 'x-credit-account': account } };
  return (await gateway.call('/tts', call)).status;
};

for (const status of [401, 403]) {
  test(`an upstream that refuses the key with ${status} is an error that names SPEECH_API_KEY`, async (t) => {
    const upstream = await startStubUpstream();
    t.teardown(() => upstream.close());
    const env = { SPEECH_BASE_URL: upstream.url, SPEECH_API_KEY: 'sk-secret', LOG_LEVEL: 'error' };
    const gateway = await startGateway(t, env);
    const account = await gateway.fund(500);
    for (const mode of [openAiError(400), openAiError(404), openAiError(429), openAiError(500), mp3()]) {
      upstream.mode = mode;
      await speak(gateway, account);
    }
    assert.deepEqual((await refusals(gateway)).logged, []);
    assert.equal((await refusals(gateway)).counted.SPEECH_API_KEY, 0);
    upstream.mode = openAiError(status);
    assert.equal(await speak(gateway, account), 502);
    assert.deepEqual((await refusals(gateway)).logged, ['SPEECH_API_KEY']);
    assert.equal((await refusals(gateway)).counted.SPEECH_API_KEY, 1);
    assert.doesNotMatch(JSON.stringify(gateway.log), /sk-secret|Hello world/);
  });
}

test('an upstream of the catalog that refuses its key is named by the variable of that key', async (t) => {
  const upstream = await startStubUpstream({ mode: openAiError(401) });
  t.teardown(() => upstream.close());
  const file = await catalogFile(t, {
    ...{ markupPercent: 100, defaultModel: 'acme/one' },
    upstreams: [{ name: 'cloud', baseUrl: upstream.url, keyVariable: 'CLOUD_KEY' }],
    models: [
      {
        ...{ id: 'acme/one', provider: 'acme', name: 'One', description: 'A model.', upstreamModel: 'one' },
        ...{ baseRatePicoUsdPerCharacter: 1_000_000, maxInputCharacters: 100, defaultVoice: 'anna', available: true },
        voices: [{ voice: 'anna', name: 'Anna', upstreamVoice: 'anna' }],
        upstreams: [{ name: 'cloud' }],
      },
    ],
  });
  const env = { CATALOG_FILE: file, CLOUD_KEY: 'sk-cloud', SPEECH_BASE_URL: '', LOG_LEVEL: 'error' };
  const gateway = await startGateway(t, env);
  assert.equal(await speak(gateway, await gateway.fund(500)), 502);
  const { logged, counted } = await refusals(gateway);
  assert.deepEqual([logged, counted.CLOUD_KEY], [['CLOUD_KEY'], 1]);
});

test('a facilitator that refuses the token is an error that names X402_FACILITATOR_AUTH', { skip }, async (t) => {
  const env = { X402_FACILITATOR_AUTH: 'old-token', LOG_LEVEL: 'error' };
  const gateway = await startX402Gateway(t, chain, env, { facilitator: { auth: 'new-token' } });
  assert.equal((await refusals(gateway)).counted.X402_FACILITATOR_AUTH, 0);
  const { reply } = await payFor(gateway, await wallet(chain.client, 1_000_000n));
  assert.equal(reply.status, 502);
  assert.equal(reply.json.error.code, 'PAYMENT_ERROR');
  const { logged, counted } = await refusals(gateway);
  assert.deepEqual([logged, counted.X402_FACILITATOR_AUTH], [['X402_FACILITATOR_AUTH'], 1]);
  assert.doesNotMatch(JSON.stringify(gateway.log), /old-token|new-token/);
});

test('a card processor that refuses the key is an error that names STRIPE_SECRET_KEY', async (t) => {
  const checkout = await testCheckout(t);
  const gateway = await startGateway(t, { ...checkout.env, STRIPE_SECRET_KEY: 'sk_test_revoked', LOG_LEVEL: 'error' });
  const buy = { method: 'POST', headers: { 'content-type': 'application/x-www-form-urlencoded' }, body: 'amount=500' };
  assert.equal((await gateway.call('/top-up', buy)).status, 502);
  await gateway.app.reconcilers.turn();
  const { logged, counted } = await refusals(gateway);
  assert.ok(logged.length >= 2, 'by the purchase and by the reconcilers');
  assert.deepEqual([...new Set(logged)], ['STRIPE_SECRET_KEY']);
  assert.equal(counted.STRIPE_SECRET_KEY, logged.length);
});
