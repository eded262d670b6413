import assert from 'node:assert/strict';
import { getWarningsForOpenAPI, PaymentInfoSchema } from '@agentcash/discovery';
import { validate } from 'mppx/discovery';
import { test } from 'tap';
import { catalogFile } from '../support/catalog-file.ts';
import { BASE_URL, type Gateway, startGateway } from '../support/gateway.ts';

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

test('the contract tells what each operation is paid, as the catalog, the metadata and the challenges do', async (t) => {
  const gateway = await startGateway(t);
  const { paid } = await served(gateway);
  assert.deepEqual(Object.keys(paid).sort(), ['createDeposit', 'createSpeech', 'createX402Speech', 'getX402Speech']);

  const { pricing, payment, prepaid } = (await gateway.call('/.well-known/x402-service-metadata')).json.payload;
  const [standard, better] = pricing.models;
  assert.deepEqual(rangeOf(paid.createX402Speech), [standard.ratePerCharacterUsd, better.maxChargeUsd]);
  assert.deepEqual(rangeOf(paid.createSpeech), rangeOf(paid.createX402Speech));
  assert.deepEqual(rangeOf(paid.getX402Speech), ['0.000018', '0.054000'], '1500 characters of the better model');
  assert.deepEqual(
    rangeOf(paid.createDeposit).map((usd) => Math.round(Number(usd) * 1e6)),
    [prepaid.minDepositMicroUsd, prepaid.maxDepositMicroUsd],
  );
  const { details } = (await gateway.call('/x402/tts?text=Hello')).json.error;
  for (const operation of ['createX402Speech', 'getX402Speech', 'createDeposit']) {
    const { protocols, offers } = paid[operation];
    const [{ scheme, network, asset }] = details.accepts;
    assert.deepEqual(protocols, [{ x402: { version: details.x402Version, scheme, network, asset } }]);
    assert.deepEqual([network, asset], [payment.network, payment.asset.address]);
    assert.equal(offers[0].currency, asset);
  }
  const challenge = (await gateway.call('/tts?text=Hello')).headers.get('www-authenticate') ?? '';
  const [{ method, intent, currency }] = paid.createSpeech.offers;
  assert.match(challenge, new RegExp(`method="${method}", intent="${intent}"`));
  assert.equal(currency, 'usd');
});

test('one object is read by both kinds of directories, and every operation says whether it takes a credential', async (t) => {
  const { document, operations, paid } = await served(
    await startGateway(t, { SERVICE_CONTACT: 'help@speech.example' }),
  );
  assert.deepEqual(validate(document), []);
  for (const info of Object.values<object>(paid)) PaymentInfoSchema.parse(info);
  const found = { raw: document, routes: operations.map(() => ({})) };
  assert.deepEqual(getWarningsForOpenAPI(found as never), []);
  assert.deepEqual(
    operations.filter(({ security }) => security === undefined).map(({ operationId }) => operationId),
    [],
  );
  assert.ok(document.info['x-guidance'].length < 4000, 'what agents read at once');
});

test('an operation whose flow is off is not told as one that is paid', async (t) => {
  const paidWith = async (env: Record<string, string>) => Object.keys((await served(await startGateway(t, env))).paid);
  assert.deepEqual(await paidWith({ X402_PAY_TO: '', X402_FACILITATOR_URL: '' }), ['createSpeech']);
  assert.deepEqual(await paidWith({ X402_RPC_URL: '' }), ['createSpeech'], 'R58');
  assert.ok(!(await paidWith({ STRIPE_SECRET_KEY: '', STRIPE_API_BASE: '' })).includes('createSpeech'));
});

test("name, contact, addresses and catalog are the deployment's, in each process alike", async (t) => {
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
  assert.deepEqual([title, contact], ['Voices of Acme', { name: title, url: 'https://acme.example/help' }]);
  assert.deepEqual(document['x-service-info'].docs, {
    homepage: `${BASE_URL}/docs`,
    apiReference: `${BASE_URL}/openapi.json`,
  });
  assert.deepEqual(rangeOf(paid.createSpeech), ['0.000015', '0.001500'], 'what is not available has no price');
  assert.deepEqual(rangeOf(paid.getX402Speech), ['0.000015', '0.001500'], "the model's own cap is the lower one");
  const { ModelId, VoiceId } = document.components.schemas;
  assert.deepEqual([ModelId.example, VoiceId.example], ['acme/fast', 'acme_bella']);
  const example = document.paths['/x402/tts'].post.requestBody.content['application/json'].example;
  assert.equal((await gateway.call('/x402/tts', { method: 'POST', json: example })).status, 402);

  const other = await served(await startGateway(t));
  assert.equal(other.document.info.title, 'speechgate', 'what one deployment is told stays with it');
  assert.deepEqual(other.document.info.contact, { name: 'speechgate', url: `${BASE_URL}/docs` });
});
