import assert from 'node:assert/strict';
import { fileURLToPath } from 'node:url';
import { test } from 'tap';
import { CatalogError, loadCatalog } from '../../src/speech/catalog.ts';
import { catalogFile } from '../support/catalog-file.ts';
import { startGateway } from '../support/gateway.ts';
import { startStubUpstream } from '../support/stub-upstream.ts';

const VOICES = ['alloy', 'ash', 'coral', 'echo', 'fable', 'onyx', 'nova', 'sage', 'shimmer'];

const acme = {
  markupPercent: 150,
  defaultModel: 'acme-2/fast',
  models: [
    {
      id: 'acme-2/fast',
      provider: 'acme-2',
      name: 'Fast',
      description: 'Fast.',
      upstreamModel: 'kokoro',
      baseRatePicoUsdPerCharacter: 1_000_002,
      maxInputCharacters: 10,
      defaultVoice: 'bella',
      available: true,
      voices: [{ voice: 'bella', name: 'Bella', upstreamVoice: 'af_bella' }],
    },
  ],
};

test('the built-in catalog is that of the specification', async (t) => {
  const gateway = await startGateway(t);
  const { json } = await gateway.call('/tts/models');
  assert.equal(json.defaultModel, 'provider-a/tts-1');
  assert.deepEqual(
    json.models.map((model: { id: string; pricing: object; maxInputCharacters: number; available: boolean }) => [
      model.id,
      model.pricing,
      model.maxInputCharacters,
      model.available,
    ]),
    [
      ['provider-a/tts-1', 0.000018, 18],
      ['provider-a/tts-1-hd', 0.000036, 36],
    ].map(([model, ratePerCharUsd, ratePerMillionCharsUsd]) => [
      model,
      {
        currency: 'USD',
        model,
        billingUnit: 'character',
        ratePerCharUsd,
        ratePerMillionCharsUsd,
        maxInputCharacters: 4096,
      },
      4096,
      true,
    ]),
  );
  for (const model of json.models) {
    const voices = (await gateway.call(`/tts/voices?model=${model.id}`)).json;
    assert.deepEqual(voices.voices, model.voices);
    assert.deepEqual(
      voices.voices.map((voice: { id: string }) => voice.id),
      VOICES.map((slug) => `provider-a_${slug}`),
    );
    assert.equal(voices.total, 9);
  }
  assert.equal((await gateway.call('/tts/voices')).json.model, 'provider-a/tts-1');
});

test('R42: nothing in the code knows a provider: another catalog is served, priced and capped as it says', async (t) => {
  const gateway = await startGateway(t, { CATALOG_FILE: await catalogFile(t, acme) });
  const { json } = await gateway.call('/tts/models');
  assert.equal(json.models[0].voices[0].id, 'acme-2_bella');
  const over = await gateway.call('/tts', { method: 'POST', json: { text: 'a'.repeat(11) } });
  assert.equal(over.status, 413);
  assert.equal(over.json.error.details.maximum, 10);
  const { error } = (await gateway.call('/tts', { method: 'POST', json: { text: 'abc' } })).json;
  assert.equal(error.details.priceMicroUsd, 5, '3 characters at 1.500003 micro-USD, rounded up');
});

test('catalogs/openai.json, as shipped: sold under ids without a hyphen in the provider', async (t) => {
  const upstream = await startStubUpstream();
  t.teardown(() => upstream.close());
  const file = fileURLToPath(new URL('../../catalogs/openai.json', import.meta.url));
  const gateway = await startGateway(t, { CATALOG_FILE: file, SPEECH_BASE_URL: upstream.url });
  const { json } = await gateway.call('/tts/models');
  assert.deepEqual([json.defaultModel, json.models.length], ['openai/tts-1', 2]);

  const account = await gateway.fund(500);
  let spent = 0n;
  for (const { id, pricing, voices } of json.models) {
    assert.match(id, /^[a-z0-9]+\//);
    assert.deepEqual(
      voices.map((voice: { id: string }) => voice.id),
      VOICES.map((slug) => `openai_${slug}`),
    );
    for (const voice of voices) {
      assert.match(voice.id, /^[a-z0-9]+_[a-z0-9]+$/);
      const call = { model: id, voice: voice.id, text: 'Hello world' };
      const reply = await gateway.call('/tts', {
        method: 'POST',
        headers: { 'x-credit-account': account },
        json: call,
      });
      assert.equal(reply.status, 200, reply.text.slice(0, 300));
      const { model, voice: spoken } = upstream.requests.at(-1)?.body ?? {};
      assert.deepEqual([`openai/${model}`, `openai_${spoken}`], [id, voice.id]);
      spent += BigInt(11 * pricing.ratePerMillionCharsUsd);
    }
  }
  assert.equal(spent, 9n * 11n * (18n + 36n), "OpenAI's 15 and 30 USD per million characters, and a fifth");
  assert.equal(await gateway.balance(account), 5_000_000n - spent);
});

const LOCAL = { name: 'local', baseUrl: 'http://127.0.0.1:8880/v1' };

/** What is wrong, the catalog's upstreams, those of its model, and how it is told. */
const UPSTREAM_FAULTS: [string, object[], object[], RegExp][] = [
  ['an upstream twice', [LOCAL, LOCAL], [{ name: 'local' }], /upstream local is listed twice/],
  [
    'an upstream twice for a model',
    [LOCAL],
    [{ name: 'local' }, { name: 'local' }],
    /fast: upstream local is listed twice/,
  ],
  ['an upstream that is not there', [LOCAL], [{ name: 'local' }, { name: 'cloud' }], /cloud is not in upstreams/],
  ['an upstream that nothing uses', [LOCAL], [{ name: 'default' }], /upstream local speaks no model/],
  ['no upstream', [], [], /upstreams must NOT have fewer than 1 items/],
  [
    'an upstream with the name of the one of SPEECH_BASE_URL',
    [{ ...LOCAL, name: 'default' }],
    [{ name: 'default' }],
    /upstream default can't be defined/,
  ],
  ['a voice that is not there', [LOCAL], [{ name: 'local', voices: { anna: 'x' } }], /names the voice anna/],
  ['a cost below nothing', [LOCAL], [{ name: 'local', costPicoUsdPerCharacter: -1 }], /must be >= 0/],
  ['a key in the file', [{ ...LOCAL, key: 'sk-1' }], [{ name: 'local' }], /\(key\)/],
  ['no name of a variable', [{ ...LOCAL, keyVariable: 'sk-1' }], [{ name: 'local' }], /keyVariable must match pattern/],
  ...['ftp://a/v1', 'http://a', 'https://a/v2', 'a/v1'].map((baseUrl): [string, object[], object[], RegExp] => [
    `the base ${baseUrl}`,
    [{ name: 'local', baseUrl }],
    [{ name: 'local' }],
    /upstream local: baseUrl is no http or https URL that ends in \/v1/,
  ]),
];

test('a catalog that can not be used is refused with every fault named', async (t) => {
  const [model] = acme.models;
  const cases: [string, unknown, RegExp][] = [
    ['no JSON', '{', /can't be read as JSON/],
    ...[{ min: 0.4 }, { max: 2.1 }, { min: 1.1 }, { max: 0.9 }, { min: '1' }, { slowest: 1 }].map(
      (speed): [string, unknown, RegExp] => [
        `the speeds ${JSON.stringify(speed)}`,
        { ...acme, models: [{ ...model, speed }] },
        /models\.0\.speed/,
      ],
    ),
    ['a missing member', { ...acme, markupPercent: undefined }, /markupPercent/],
    ['an unknown member', { ...acme, extra: 1 }, /\(extra\)/],
    [
      'a float rate',
      { ...acme, models: [{ ...model, baseRatePicoUsdPerCharacter: 1.5 }] },
      /baseRatePicoUsdPerCharacter must be integer/,
    ],
    [
      'a rate that is no whole number with the markup',
      { ...acme, models: [{ ...model, baseRatePicoUsdPerCharacter: 1 }] },
      /no whole number/,
    ],
    ['a default model that is not there', { ...acme, defaultModel: 'x/y' }, /x\/y is not in models/],
    ['a default voice that is not there', { ...acme, models: [{ ...model, defaultVoice: 'x' }] }, /defaultVoice x/],
    ['an id of another provider', { ...acme, models: [{ ...model, id: 'other/fast' }] }, /not of the form acme-2\//],
    ['a model twice', { ...acme, models: [model, model] }, /listed twice/],
    ...UPSTREAM_FAULTS.map(
      ([name, upstreams, ofModel, message]) =>
        [name, { ...acme, upstreams, models: [{ ...model, upstreams: ofModel }] }, message] as [
          string,
          unknown,
          RegExp,
        ],
    ),
    [
      'two names of a voice at an upstream, whose jobs would know one',
      {
        ...acme,
        upstreams: [LOCAL],
        models: [
          {
            ...model,
            voices: [...(model?.voices ?? []), { voice: 'eva', name: 'Eva', upstreamVoice: 'af_bella' }],
            upstreams: [{ name: 'local', voices: { eva: 'e' } }],
          },
        ],
      },
      /several names for the upstreamVoice af_bella/,
    ],
    ['a share of silence beyond its range', { ...acme, silencePercent: 91 }, /silencePercent must be <= 90/],
    [
      'several at once',
      { ...acme, defaultModel: 'x/y', models: [{ ...model, defaultVoice: 'x' }] },
      /x\/y.*defaultVoice x/,
    ],
  ];
  for (const [name, content, message] of cases) {
    await t.test(name, async (t) => {
      const file = await catalogFile(t, content);
      assert.throws(
        () => loadCatalog(file),
        (error) => error instanceof CatalogError && message.test(error.message),
      );
    });
  }
});

test('a model may speak at a narrower range of speeds than the contract', async (t) => {
  const [fast] = acme.models;
  const models = [
    { ...fast, speed: { min: 0.8, max: 1.2 } },
    { ...fast, id: 'acme-2/steady', speed: { min: 1, max: 1 } },
    { ...fast, id: 'acme-2/slow', speed: { max: 1.5 } },
    { ...fast, id: 'acme-2/any' },
  ];
  const upstream = await startStubUpstream();
  t.teardown(() => upstream.close());
  const file = await catalogFile(t, { ...acme, models });
  const gateway = await startGateway(t, { CATALOG_FILE: file, SPEECH_BASE_URL: upstream.url });
  const account = await gateway.fund(500);

  await t.test('GET /tts/models shows it', async () => {
    const { json } = await gateway.call('/tts/models');
    assert.deepEqual(
      json.models.map(({ speed }: { speed: object }) => speed),
      [
        { min: 0.8, max: 1.2, default: 1 },
        { min: 1, max: 1, default: 1 },
        { min: 0.5, max: 1.5, default: 1 },
        { min: 0.5, max: 2, default: 1 },
      ],
    );
  });

  await t.test('another speed is INVALID_SPEED with the range, in each flow', async () => {
    const json = { text: 'a', model: 'acme-2/fast', speed: 1.3 };
    const query = 'text=a&model=acme-2/fast&speed=1.3';
    const refused = [
      await gateway.call('/tts', { method: 'POST', json, headers: { 'x-credit-account': account } }),
      await gateway.call(`/tts?${query}`, { headers: { 'x-credit-account': account } }),
      await gateway.call('/tts?async=true', { method: 'POST', json, headers: { 'x-credit-account': account } }),
      await gateway.call('/x402/tts', { method: 'POST', json }),
      await gateway.call(`/x402/tts?${query}`),
      await gateway.call('/x402/tts/quote', {
        method: 'POST',
        json: { textLength: 1, textSha256: '0'.repeat(64), model: 'acme-2/fast', speed: 1.3 },
      }),
    ];
    for (const { status, json: body } of refused) {
      assert.deepEqual([status, body.error.code], [400, 'INVALID_SPEED']);
      assert.match(body.error.message, /0\.8 to 1\.2/);
      assert.deepEqual(body.error.details, { field: 'speed', rule: 'range', minimum: 0.8, maximum: 1.2 });
    }
    assert.equal(upstream.requests.length, 0);
  });

  await t.test('a speed within it, and none, are spoken', async () => {
    for (const model of ['acme-2/fast', 'acme-2/steady']) {
      for (const speed of [1, undefined, ...(model === 'acme-2/fast' ? [0.8, 1.2] : [])]) {
        const json = { text: 'a', model, speed };
        const reply = await gateway.call('/tts', { method: 'POST', json, headers: { 'x-credit-account': account } });
        assert.equal(reply.status, 200, `${model} at ${speed}`);
      }
    }
  });
});
