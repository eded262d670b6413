import assert from 'node:assert/strict';
import fc from 'fast-check';
import { test } from 'tap';
import { CatalogError, loadCatalog } from '../../src/config/catalog.ts';
import { type OrderRequest, placeOrder } from '../../src/speech/order.ts';
import { priceMicroUsd } from '../../src/speech/price.ts';
import { catalogFile, catalogWith } from '../support/catalog-file.ts';
import { startGateway } from '../support/gateway.ts';
import { testUpstream } from '../support/stub-upstream.ts';

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

test('the built-in catalog matches the specification', async (t) => {
  const gateway = await startGateway(t);
  const { json } = await gateway.call('/tts/models');
  t.equal(json.defaultModel, 'provider-a/tts-1');
  t.strictSame(
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
    t.strictSame(voices.voices, model.voices);
    t.strictSame(
      voices.voices.map((voice: { id: string }) => voice.id),
      VOICES.map((slug) => `provider-a_${slug}`),
    );
    t.equal(voices.total, 9);
  }
  t.equal((await gateway.call('/tts/voices')).json.model, 'provider-a/tts-1');
});

test('R42: another catalog is served, priced and capped without code changes', async (t) => {
  const gateway = await startGateway(t, { CATALOG_FILE: await catalogFile(t, acme) });
  const { json } = await gateway.call('/tts/models');
  t.equal(json.models[0].voices[0].id, 'acme-2_bella');
  const over = await gateway.call('/tts', { method: 'POST', json: { text: 'a'.repeat(11) } });
  t.equal(over.status, 413);
  t.equal(over.json.error.details.maximum, 10);
  const { error } = (await gateway.call('/tts', { method: 'POST', json: { text: 'abc' } })).json;
  t.equal(error.details.priceMicroUsd, 5, '3 characters at 1.500003 micro-USD, rounded up');
});

test('a model whose upstreams have no speeds says so, and refuses others uncharged', async (t) => {
  const upstream = await testUpstream(t);
  const file = await catalogWith(t, { speed: { max: 1.5 }, upstreams: [{ name: 'default', speed: false }] });
  const gateway = await startGateway(t, { CATALOG_FILE: file, SPEECH_BASE_URL: upstream.url });
  const { models } = (await gateway.call('/tts/models')).json;
  t.strictSame(models[0].speed, { min: 1, max: 1, default: 1 });
  const account = await gateway.fund(100);
  const speakAt = (speed: number) =>
    gateway.call('/tts', {
      method: 'POST',
      headers: { 'x-credit-account': account },
      json: { text: 'Hello world', speed },
    });
  for (const speed of [1.2, 0.5]) {
    const { status, json } = await speakAt(speed);
    t.strictSame([status, json.error.code], [400, 'INVALID_SPEED']);
    t.match(json.error.message, /^speed must be 1 .* You were not charged\.$/);
    t.match(json.error.details, { field: 'speed', rule: 'range', minimum: 1, maximum: 1 });
  }
  t.equal(await gateway.balance(account), 1_000_000n);
  t.equal((await speakAt(1)).status, 200);
  t.equal(upstream.requests.length, 1);
});

const LOCAL = { name: 'local', baseUrl: 'http://127.0.0.1:8880/v1' };

/** What is wrong, the catalog's upstreams, those of its model, and how it is told. */
const UPSTREAM_FAULTS: [string, object[], object[], RegExp][] = [
  ['a duplicate upstream', [LOCAL, LOCAL], [{ name: 'local' }], /upstream local is listed twice/],
  [
    'a duplicate upstream of a model',
    [LOCAL],
    [{ name: 'local' }, { name: 'local' }],
    /fast: upstream local is listed twice/,
  ],
  ['an unknown upstream', [LOCAL], [{ name: 'local' }, { name: 'cloud' }], /cloud is missing in the list "upstreams"/],
  ['no upstream', [], [], /upstreams must NOT have fewer than 1 items/],
  [
    'an upstream named like that of SPEECH_BASE_URL',
    [{ ...LOCAL, name: 'default' }],
    [{ name: 'default' }],
    /upstream default needs another name/,
  ],
  ['an unknown voice', [LOCAL], [{ name: 'local', voices: { anna: 'x' } }], /names the voice anna/],
  ['a request of few characters', [LOCAL], [{ name: 'local', maxRequestCharacters: 99 }], /must be >= 100/],
  ['a negative cost', [LOCAL], [{ name: 'local', costPicoUsdPerCharacter: -1 }], /must be >= 0/],
  ['a key in the file', [{ ...LOCAL, key: 'sk-1' }], [{ name: 'local' }], /\(key\)/],
  ...['ftp://a/v1', 'http://a', 'https://a/v2', 'a/v1'].map((baseUrl): [string, object[], object[], RegExp] => [
    `the base ${baseUrl}`,
    [{ name: 'local', baseUrl }],
    [{ name: 'local' }],
    /upstream local: baseUrl must be an http or https URL that ends in \/v1/,
  ]),
];

test('an invalid catalog is refused with every fault named', async (t) => {
  const [model] = acme.models;
  const cases: [string, unknown, RegExp][] = [
    ['invalid JSON', '{', /can't be read as JSON/],
    ...[{ min: 0.4 }, { max: 2.1 }, { min: 1.1 }, { max: 0.9 }, { min: '1' }, { slowest: 1 }].map(
      (speed): [string, unknown, RegExp] => [
        `the speeds ${JSON.stringify(speed)}`,
        { ...acme, models: [{ ...model, speed }] },
        /models\.0\.speed/,
      ],
    ),
    ...[{ min: 2 }, { min: 6, max: 40 }, { min: 2, max: 19 }, { min: 2, max: 40, per: 1 }].map(
      (charactersPerSecond): [string, unknown, RegExp] => [
        `the pace ${JSON.stringify(charactersPerSecond)}`,
        { ...acme, models: [{ ...model, charactersPerSecond }] },
        /models\.0\.charactersPerSecond/,
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
      'a rate that is fractional with the markup',
      { ...acme, models: [{ ...model, baseRatePicoUsdPerCharacter: 1 }] },
      /must be a whole number/,
    ],
    ['an unknown default model', { ...acme, defaultModel: 'x/y' }, /x\/y is not the id of a model/],
    ['an unknown default voice', { ...acme, models: [{ ...model, defaultVoice: 'x' }] }, /defaultVoice x/],
    ['an id of another provider', { ...acme, models: [{ ...model, id: 'other/fast' }] }, /must have the form acme-2\//],
    ['a duplicate model', { ...acme, models: [model, model] }, /listed twice/],
    ...UPSTREAM_FAULTS.map(
      ([name, upstreams, ofModel, message]) =>
        [name, { ...acme, upstreams, models: [{ ...model, upstreams: ofModel }] }, message] as [
          string,
          unknown,
          RegExp,
        ],
    ),
    [
      'two names for one upstreamVoice',
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
      /upstreamVoice af_bella maps to several voices/,
    ],
    ['a silencePercent out of range', { ...acme, silencePercent: 91 }, /silencePercent must be <= 90/],
    [
      'several faults at once',
      { ...acme, defaultModel: 'x/y', models: [{ ...model, defaultVoice: 'x' }] },
      /x\/y.*defaultVoice x/,
    ],
    [
      'a malformed member beside an inconsistency',
      {
        ...acme,
        models: [
          { ...model, baseRatePicoUsdPerCharacter: -1, voices: [model?.voices[0], model?.voices[0]] },
          { ...model, id: 'acme-2/slow', upstreams: 'none', defaultVoice: 'x' },
        ],
      },
      /models\.0\.baseRate\w+ must be >= 1.*models\.1\.upstreams must be array.*fast lists a voice twice.*defaultVoice x/,
    ],
    ...['{}', '[]', 'null', '{"models":[null,{"id":"a/b","voices":[{}]}],"upstreams":[1]}'].map(
      (content): [string, unknown, RegExp] => [`the file ${content}`, content, /: the file must|: models/],
    ),
  ];
  for (const [name, content, message] of cases) {
    const file = await catalogFile(t, content);
    assert.throws(
      () => loadCatalog(file),
      (error) => error instanceof CatalogError && message.test(error.message),
      name,
    );
  }
});

test('a model may restrict speeds to a narrower range than the contract', async (t) => {
  const [fast] = acme.models;
  const models = [
    { ...fast, speed: { min: 0.8, max: 1.2 } },
    { ...fast, id: 'acme-2/steady', speed: { min: 1, max: 1 } },
    { ...fast, id: 'acme-2/slow', speed: { max: 1.5 } },
    { ...fast, id: 'acme-2/any' },
  ];
  const upstream = await testUpstream(t);
  const file = await catalogFile(t, { ...acme, models });
  const gateway = await startGateway(t, { CATALOG_FILE: file, SPEECH_BASE_URL: upstream.url });
  const account = await gateway.fund(500);

  await t.test('GET /tts/models shows the speed range', async (t) => {
    const { json } = await gateway.call('/tts/models');
    t.strictSame(
      json.models.map(({ speed }: { speed: object }) => speed),
      [
        { min: 0.8, max: 1.2, default: 1 },
        { min: 1, max: 1, default: 1 },
        { min: 0.5, max: 1.5, default: 1 },
        { min: 0.5, max: 2, default: 1 },
      ],
    );
  });

  await t.test('a speed outside the range is INVALID_SPEED in each flow', async (t) => {
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
      t.strictSame([status, body.error.code], [400, 'INVALID_SPEED']);
      t.match(body.error.message, /0\.8 to 1\.2/);
      t.strictSame(body.error.details, { field: 'speed', rule: 'range', minimum: 0.8, maximum: 1.2 });
    }
    t.equal(upstream.requests.length, 0);
  });

  await t.test('a speed within the range or an omitted speed is accepted', async (t) => {
    for (const speed of [undefined, 0.8, 1.2]) {
      const json = { text: 'a', model: 'acme-2/fast', speed };
      const reply = await gateway.call('/tts', { method: 'POST', json, headers: { 'x-credit-account': account } });
      t.equal(reply.status, 200, `at ${speed}`);
    }
  });
});

const catalog = loadCatalog();

test('R3: the price is ceil(characters x rate) in whole micro-USD', async (t) => {
  const cases: [number, bigint, bigint][] = [
    [1, 18_000_000n, 18n],
    [11, 18_000_000n, 198n],
    [4096, 36_000_000n, 147_456n],
    [1, 1n, 1n],
    [1_000_000, 1n, 1n],
    [1_000_001, 1n, 2n],
    [3, 1_500_000n, 5n],
  ];
  for (const [characters, rate, price] of cases) t.equal(priceMicroUsd(characters, rate), price);

  await t.test('rounding up adds less than one micro-USD', async () => {
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 60_000 }), fc.bigInt({ min: 1n, max: 10n ** 12n }), (characters, rate) => {
        const exact = BigInt(characters) * rate;
        const price = priceMicroUsd(characters, rate) * 1_000_000n;
        assert.ok(price >= exact && price < exact + 1_000_000n);
      }),
    );
  });
});

test('R7: the catalog checks run in the order model, voice, speed, cap', async (t) => {
  const long = 'a'.repeat(4097);
  const cases: [string, OrderRequest, string][] = [
    ['all wrong', { text: long, model: 'x', voice: 'x', speed: 9 }, 'UNKNOWN_TTS_MODEL'],
    ['voice, speed and cap', { text: long, voice: 'alloy', speed: 9 }, 'INVALID_VOICE'],
    ['speed and cap', { text: long, speed: '1e0' }, 'INVALID_SPEED'],
    ['the cap', { text: long }, 'TEXT_TOO_LONG'],
    ['an upstream name', { text: 'a', model: 'tts-1' }, 'UNKNOWN_TTS_MODEL'],
    ['a voice in another case', { text: 'a', voice: 'provider-a_Alloy' }, 'INVALID_VOICE'],
    ['a speed with a sign', { text: 'a', speed: '+1' }, 'INVALID_SPEED'],
    ['a speed below the minimum', { text: 'a', speed: 0.49 }, 'INVALID_SPEED'],
    ['a speed that is not a number', { text: 'a', speed: Number.NaN }, 'INVALID_SPEED'],
  ];
  for (const [name, request, code] of cases) {
    const result = placeOrder(catalog, request);
    t.equal(result.outcome === 'refused' && result.code, code, name);
  }
});

test('R1, R2: characters are UTF-16 units of the trimmed text', async () => {
  const cases: [string, string, number][] = [
    ['  Hello world\n', 'Hello world', 11],
    ['\ufeffa\u00a0', 'a', 1],
    ['😀', '😀', 2],
    ['e\u0301', 'e\u0301', 2],
    ['語', '語', 1],
  ];
  for (const [given, spoken, characters] of cases) {
    const result = placeOrder(catalog, { text: given });
    assert.ok(result.outcome === 'placed');
    assert.equal(result.order.text, spoken);
    assert.equal(result.order.characters, characters);
  }
});

test('omitted fields use the default model, its default voice and speed 1', async (t) => {
  const result = placeOrder(catalog, { text: 'a' });
  assert.ok(result.outcome === 'placed');
  const { model, voice, speed } = result.order;
  t.strictSame([model.id, voice.id, speed], ['provider-a/tts-1', 'provider-a_alloy', 1]);
});
