import assert from 'node:assert/strict';
import { test } from 'tap';
import { type Fallbacks, resolve } from '../../src/bridge/names.ts';
import type { TtsModel, TtsModelsResponse } from '../../src/contract/types.ts';
import { HELLO, openBridge } from '../support/bridge.ts';

const modelOf = (id: string, provider: string, slugs: readonly string[]): TtsModel =>
  ({
    ...{ id, provider, name: id, description: '', available: true, maxInputCharacters: 4096 },
    voices: slugs.map((slug) => ({ id: `${provider}_${slug}`, voice: slug, provider, name: slug })),
    defaultVoice: `${provider}_${slugs[0]}`,
  }) as unknown as TtsModel;

const catalog = (slugs: readonly string[]): TtsModelsResponse =>
  ({
    defaultModel: 'acme/tts-1',
    models: [modelOf('acme/tts-1', 'acme', slugs), modelOf('acme/tts-1-hd', 'acme', slugs)],
  }) as TtsModelsResponse;

const SLUGS = ['de-anna', 'en-nova', 'en-alloy', 'en-us-echo', 'fr-nova'];

const voice = (asked: string | undefined, slugs = SLUGS, fallbacks: Fallbacks = {}): string =>
  resolve(catalog(slugs), { model: 'tts-1', voice: asked }, fallbacks).voice;

test('a voice has its name in any case, with _ or -, with or without the provider', async () => {
  for (const asked of [
    'acme_en-us-echo',
    'acme-en-us-echo',
    'ACME_EN_US_ECHO',
    'en-us-echo',
    'en_us_echo',
    'En-US_Echo',
  ]) {
    assert.equal(voice(asked), 'acme_en-us-echo', asked);
  }
  assert.equal(voice('german', SLUGS, { voice: 'DE_Anna' }), 'acme_de-anna', 'a fallback too');
});

test('a model has its name in any case, with _ or -, with or without the provider', async () => {
  for (const asked of ['acme/tts-1-hd', 'ACME/TTS_1_HD', 'tts-1-hd', 'tts_1_hd', 'TTS-1-HD']) {
    assert.equal(resolve(catalog(SLUGS), { model: asked, voice: undefined }, {}).model.id, 'acme/tts-1-hd', asked);
  }
});

test("one of OpenAI's names is the voice that ends in it", async () => {
  for (const [asked, expected] of [
    ['nova', 'acme_en-nova'],
    ['NOVA', 'acme_en-nova'],
    ['alloy', 'acme_en-alloy'],
    ['echo', 'acme_en-us-echo'],
  ] as const) {
    assert.equal(voice(asked), expected);
    assert.equal(voice(asked, SLUGS, { voice: 'de-anna' }), expected, 'rather than the fallback');
  }
  assert.equal(voice('nova', ['en-nova', 'nova']), 'acme_nova', 'the whole name goes first');
  assert.equal(voice('sage', ['massage', 'en-sage']), 'acme_en-sage', 'a part of a word is none');
});

test("one of OpenAI's names that no voice ends in is always the same voice, or the fallback", async () => {
  for (const asked of ['marin', 'onyx', 'Shimmer']) {
    assert.equal(voice(asked), voice(asked.toLowerCase()), asked);
    assert.ok(SLUGS.includes(voice(asked).replace('acme_', '')));
    assert.equal(voice(asked, SLUGS, { voice: 'fr-nova' }), 'acme_fr-nova');
  }
  assert.throws(() => voice('nobody'), /acme_de-anna, acme_en-nova/);
  assert.throws(() => voice('anna'), /has no voice of that name/);
});

test('speed is left out at 1', async (t) => {
  const bodies: Record<string, unknown>[] = [];
  const { origin } = await openBridge(t, {
    client: {
      fetch: async (input, init) => {
        const request = input instanceof Request ? input : new Request(input, init);
        if (request.method === 'POST') bodies.push(JSON.parse(await request.clone().text()));
        return fetch(request);
      },
    },
  });
  for (const speed of [1, 1.25, undefined]) {
    const body = JSON.stringify({ model: 'tts-1', voice: 'alloy', input: HELLO, speed });
    const headers = { 'content-type': 'application/json' };
    const response = await fetch(`${origin}/v1/audio/speech`, { method: 'POST', headers, body });
    assert.equal(response.status, 200);
    await response.arrayBuffer();
  }
  assert.deepEqual(
    bodies.map(({ speed }) => speed),
    [undefined, 1.25, undefined],
  );
});
