import { getWarningsForOpenAPI, PaymentInfoSchema } from '@agentcash/discovery';
import { validate } from 'mppx/discovery';
import { t, test } from 'tap';
import { privateKeyToAccount } from 'viem/accounts';
import { SIGNING_VECTORS } from '../../../src/payments/prepaid/prepaid-vectors.ts';
import { catalogFile } from '../../support/catalog-file.ts';
import { testDatabase } from '../../support/database.ts';
import { controlDatabaseClock } from '../../support/database-clock.ts';
import { BASE_URL, type Call, type Gateway, startGateway } from '../../support/gateway.ts';
import { fundedWallet, startPrepaidGateway, withHeaders } from '../../support/prepaid.ts';

/** With the settings of all tests. */
const plain = await startGateway(t);

test('R41: the guide has payment and steps of each flow and stable limit names', async (t) => {
  const gateway = plain;
  const { limits, payment, agentGuide } = (await gateway.call('/docs')).json;
  t.strictSame([limits.maxTextLength, limits.getTtsMaxTextLength], [4096, 1500]);
  t.strictSame([limits.depositConfirmations, limits.depositTimeoutSeconds], [2, 120]);
  t.equal(gateway.config.x402?.confirmationTimeoutMs, 120_000);
  t.strictSame(Object.keys(payment), ['cardCredits', 'directX402', 'prepaidX402']);
  for (const flow of Object.keys(payment)) t.ok(agentGuide[flow].length >= 4, flow);
  t.match(agentGuide.privacy, /neither logged nor stored nor forwarded/);
});

test('the guide publishes SPEECH_TIMEOUT_MS in whole seconds, rounded up', async (t) => {
  const secondsOf = async (gateway: Gateway) => (await gateway.call('/docs')).json.limits.speechTimeoutSeconds;
  t.equal(await secondsOf(plain), 45);
  t.equal(await secondsOf(await startGateway(t, { SPEECH_TIMEOUT_MS: '90001' })), 91);
});

test('the guide describes the domain and headers of the signed metadata', async (t) => {
  const gateway = await startGateway(t, { SERVICE_NAME: 'example' });
  const { authentication } = (await gateway.call('/docs')).json.payment.prepaidX402;
  const signed = (await gateway.call('/.well-known/x402-service-metadata')).json.payload.prepaid.authentication;
  t.strictSame(
    [authentication.domain.name, authentication.domain.version, authentication.primaryType],
    [signed.domainName, signed.domainVersion, signed.primaryType],
  );
  t.equal(signed.domainName, 'example-Prepaid');
  t.strictSame(Object.keys(authentication.headers), signed.headers);
  const fields = authentication.types.PrepaidRequest.map(({ name }: { name: string }) => name);
  t.strictSame(Object.keys(authentication.message), fields);
});

test('the published example requests are accepted until they expire', async (t) => {
  const { url: databaseUrl } = await testDatabase(t);
  const clock = await controlDatabaseClock(databaseUrl);
  t.teardown(() => clock.close());
  const { domain, privateKey, requests } = SIGNING_VECTORS;
  const expiry = Number(requests[0].message.expiry);
  await clock.advance(`${expiry - 60 - Date.parse('2030-01-01T00:00:00Z') / 1000} seconds`);
  const env = { SERVICE_NAME: 'example', X402_PAY_TO: domain.verifyingContract };
  const example = await startPrepaidGateway(t, env, { databaseUrl });
  await fundedWallet(example, 100_000n, privateKeyToAccount(privateKey));
  const { vectors } = (await example.call('/docs')).json.payment.prepaidX402.authentication;
  for (const { shows, request, headers } of vectors.requests) {
    const { method, target, body } = request;
    const call: Call = withHeaders({ method, headers, body }, { 'content-type': body && 'application/json' });
    const changed = withHeaders(call, { 'x-x402-nonce': 'another' });
    t.equal((await example.call(target, changed)).status, 401, shows);
    const reply = await example.call(target, call);
    t.equal(reply.status, 200, `${shows}: ${reply.text.slice(0, 300)}`);
  }
  await clock.advance('61 seconds');
  const [{ request, headers }] = vectors.requests.slice(-1);
  t.equal((await example.call(request.target, { headers })).status, 400, 'they have expired since');
});

test('the published direct payment is refused for its time alone', async (t) => {
  const gateway = await startGateway(t, { X402_PAY_TO: SIGNING_VECTORS.domain.verifyingContract });
  const { request, headers } = (await gateway.call('/docs')).json.payment.directX402.vector;
  const { method, target, body } = request;
  const call: Call = withHeaders({ method, headers, body }, { 'content-type': 'application/json' });
  const reply = await gateway.call(target, call);
  t.strictSame([reply.status, reply.json.error.details.error], [402, 'authorization_expires_too_soon'], reply.text);
});

interface Operation {
  readonly operationId: string;
  readonly security?: readonly object[];
  // biome-ignore lint/suspicious/noExplicitAny: its shape is held against the validators of those who read it
  readonly 'x-payment-info'?: any;
}

async function served(gateway: Gateway) {
  const document = (await gateway.call('/openapi.json')).json;
  const operations = Object.values<Record<string, Operation>>(document.paths).flatMap((path) => Object.values(path));
  const paid = Object.fromEntries(
    operations.flatMap(({ operationId, 'x-payment-info': info }) => (info ? [[operationId, info]] : [])),
  );
  return { document, operations, paid };
}

const rangeOf = (info: { price: { min: string; max: string } }) => [info.price.min, info.price.max];

test('the contract states prices as the catalog, metadata and challenges do', async (t) => {
  const gateway = plain;
  const { paid } = await served(gateway);
  t.strictSame(Object.keys(paid).sort(), ['createDeposit', 'createSpeech', 'createX402Speech', 'getX402Speech']);

  const { pricing, payment, prepaid } = (await gateway.call('/.well-known/x402-service-metadata')).json.payload;
  const [standard, better] = pricing.models;
  t.strictSame(rangeOf(paid.createX402Speech), [standard.ratePerCharacterUsd, better.maxChargeUsd]);
  t.strictSame(rangeOf(paid.createSpeech), rangeOf(paid.createX402Speech));
  t.strictSame(rangeOf(paid.getX402Speech), ['0.000018', '0.054000'], '1500 characters of the better model');
  t.strictSame(
    rangeOf(paid.createDeposit).map((usd) => Math.round(Number(usd) * 1e6)),
    [prepaid.minDepositMicroUsd, prepaid.maxDepositMicroUsd],
  );
  const { details } = (await gateway.call('/x402/tts?text=Hello')).json.error;
  for (const operation of ['createX402Speech', 'getX402Speech', 'createDeposit']) {
    const { protocols, offers } = paid[operation];
    const [{ scheme, network, asset }] = details.accepts;
    t.strictSame(protocols, [{ x402: { version: details.x402Version, scheme, network, asset } }]);
    t.strictSame([network, asset], [payment.network, payment.asset.address]);
    t.equal(offers[0].currency, asset);
  }
  const challenge = (await gateway.call('/tts?text=Hello')).headers.get('www-authenticate') ?? '';
  const [{ method, intent, currency }] = paid.createSpeech.offers;
  t.match(challenge, new RegExp(`method="${method}", intent="${intent}"`));
  t.equal(currency, 'usd');
});

test('directories accept the contract, and each operation declares its security', async (t) => {
  const { document, operations, paid } = await served(
    await startGateway(t, { SERVICE_CONTACT: 'help@speech.example' }),
  );
  t.strictSame(validate(document), []);
  for (const info of Object.values<object>(paid)) PaymentInfoSchema.parse(info);
  const found = { raw: document, routes: operations.map(() => ({})) };
  t.strictSame(getWarningsForOpenAPI(found as never), []);
  t.strictSame(
    operations.filter(({ security }) => security === undefined).map(({ operationId }) => operationId),
    [],
  );
  t.ok(document.info['x-guidance'].length < 4000, 'what agents read at once');
});

test('an operation whose flow is off is not listed as paid', async (t) => {
  const paidWith = async (env: Record<string, string>) => Object.keys((await served(await startGateway(t, env))).paid);
  t.strictSame(await paidWith({ X402_PAY_TO: '', X402_FACILITATOR_URL: '' }), ['createSpeech']);
  t.strictSame(await paidWith({ X402_RPC_URL: '' }), ['createSpeech'], 'R58');
  t.ok(!(await paidWith({ STRIPE_SECRET_KEY: '', STRIPE_API_BASE: '' })).includes('createSpeech'));
});

test('name, contact, addresses and catalog are those of the deployment', async (t) => {
  const model = {
    ...{ id: 'acme/fast', provider: 'acme', name: 'Fast', description: 'Fast.', upstreamModel: 'fast' },
    ...{ baseRatePicoUsdPerCharacter: 10_000_000, maxInputCharacters: 100, defaultVoice: 'bella', available: true },
    voices: [{ voice: 'bella', name: 'Bella', upstreamVoice: 'bella' }],
  };
  const closed = { ...model, id: 'acme/closed', baseRatePicoUsdPerCharacter: 1_000_000, available: false };
  const catalog = { markupPercent: 150, defaultModel: 'acme/fast', models: [model, closed] };
  const gateway = await startGateway(t, {
    CATALOG_FILE: await catalogFile(t, catalog),
    SERVICE_NAME: 'Voices of Acme',
    SERVICE_CONTACT: 'https://acme.example/help',
  });
  const { document, paid } = await served(gateway);
  const { title, contact } = document.info;
  t.strictSame([title, contact], ['Voices of Acme', { name: title, url: 'https://acme.example/help' }]);
  t.strictSame(document['x-service-info'].docs, {
    homepage: `${BASE_URL}/docs`,
    apiReference: `${BASE_URL}/openapi.json`,
  });
  t.strictSame(rangeOf(paid.createSpeech), ['0.000015', '0.001500'], 'what is not available has no price');
  t.strictSame(rangeOf(paid.getX402Speech), ['0.000015', '0.001500'], "the model's own cap is the lower one");
  const { ModelId, VoiceId } = document.components.schemas;
  t.strictSame([ModelId.example, VoiceId.example], ['acme/fast', 'acme_bella']);
  const example = document.paths['/x402/tts'].post.requestBody.content['application/json'].example;
  t.equal((await gateway.call('/x402/tts', { method: 'POST', json: example })).status, 402);

  const other = await served(plain);
  t.equal(other.document.info.title, 'speechgate', 'what one deployment is told stays with it');
  t.strictSame(other.document.info.contact, { name: 'speechgate', url: `${BASE_URL}/docs` });
});
