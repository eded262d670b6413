import assert from 'node:assert/strict';
import { test } from 'tap';
import { catalogFile } from '../support/catalog-file.ts';
import { configOf, DATABASE_URL, faultsOf, testSettings } from '../support/setting.ts';
import { SPEECH_SETTINGS } from '../support/settings-of-speech.ts';

testSettings(SPEECH_SETTINGS);

test('the embedded voice takes no key', async () => {
  assert.deepEqual(configOf({ DATABASE_URL, SPEECH_BASE_URL: 'embedded:', SPEECH_API_KEY: 'key' }).speech, {
    baseUrl: 'embedded:',
    apiKey: undefined,
    timeoutMs: 45_000,
    servers: [],
    streaming: { totalMs: 900_000, leaseSeconds: 75, waitingBytes: 256 * 1024 * 1024 },
  });
});

const MODEL = {
  ...{ id: 'acme/one', provider: 'acme', name: 'One', description: 'One.', upstreamModel: 'one' },
  ...{ baseRatePicoUsdPerCharacter: 100, maxInputCharacters: 10, defaultVoice: 'bella', available: true },
  voices: [{ voice: 'bella', name: 'Bella', upstreamVoice: 'bella' }],
};
const CATALOG = {
  ...{ markupPercent: 100, defaultModel: 'acme/one' },
  upstreams: [
    { name: 'cloud', baseUrl: 'https://cloud.example/v1', keyVariable: 'CLOUD_SPEECH_KEY' },
    { name: 'local', baseUrl: 'http://127.0.0.1:8880/v1' },
  ],
  models: [{ ...MODEL, upstreams: [{ name: 'cloud' }, { name: 'local' }] }],
};

test('upstreams of the catalog have their keys from the variables that it names, and need no SPEECH_BASE_URL', async (t) => {
  const CATALOG_FILE = await catalogFile(t, CATALOG);
  const { speech } = configOf({ DATABASE_URL, CATALOG_FILE, CLOUD_SPEECH_KEY: 'key of the cloud' });
  assert.equal(speech?.baseUrl, undefined);
  assert.deepEqual(speech?.servers, [
    { name: 'cloud', baseUrl: 'https://cloud.example/v1', apiKey: 'key of the cloud', keyVariable: 'CLOUD_SPEECH_KEY' },
    { name: 'local', baseUrl: 'http://127.0.0.1:8880/v1', apiKey: undefined, keyVariable: undefined },
  ]);
});

test('R47: a key variable that is missing is named, with all other faults', async (t) => {
  const both = [MODEL, { ...MODEL, id: 'acme/two' }].map((model) => ({ ...model, upstreams: [{ name: 'default' }] }));
  const CATALOG_FILE = await catalogFile(t, { ...CATALOG, models: [CATALOG.models[0], both[1]] });
  const faults = faultsOf({ DATABASE_URL, CATALOG_FILE, PORT: 'x' });
  assert.deepEqual(
    faults.map(({ name }) => name),
    ['PORT', 'CLOUD_SPEECH_KEY', 'SPEECH_BASE_URL'],
  );
  assert.match(faults[1]?.problem ?? '', /^is not set, but upstream cloud in CATALOG_FILE takes its key from it$/);
  assert.match(faults[2]?.problem ?? '', /acme\/two$/);
});
