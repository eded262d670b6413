/** docs/recipes.md and the files of catalogs/ belong together, and each file can be sold from. */
import assert from 'node:assert/strict';
import { readdir, readFile } from 'node:fs/promises';
import { test } from 'tap';
import { readConfig } from '../../src/settings/config.ts';
import { loadCatalog } from '../../src/speech/catalog.ts';
import { startGateway } from '../support/gateway.ts';
import { startStubUpstream } from '../support/stub-upstream.ts';

const PROJECT = new URL('../../', import.meta.url);
const files = (await readdir(new URL('catalogs/', PROJECT))).map((name) => `catalogs/${name}`);
const [, ...recipes] = (await readFile(new URL('docs/recipes.md', PROJECT), 'utf8')).split(/^## /m);
const settingsIn = (recipe: string): Record<string, string> =>
  Object.fromEntries([...recipe.matchAll(/^([A-Z_]+)=(.+)$/gm)].map(([, name, value]) => [name, value]));

test('each catalog has a recipe, and each recipe a catalog', async () => {
  const named = recipes.map((recipe) => settingsIn(recipe).CATALOG_FILE);
  assert.deepEqual(named.toSorted(), files.toSorted());
});

for (const recipe of recipes) {
  const settings = settingsIn(recipe);
  const file = settings.CATALOG_FILE ?? '';
  test(`${file}: the settings of its recipe are read, and callers reach the models and voices by name`, async (t) => {
    const read = readConfig({ DATABASE_URL: 'postgres://db.example/speechgate', ...settings });
    assert.deepEqual([read.outcome, read.misspelt], ['read', []]);
    const { models } = loadCatalog(file);
    const upstream = await startStubUpstream();
    t.teardown(() => upstream.close());
    const gateway = await startGateway(t, { CATALOG_FILE: file, SPEECH_BASE_URL: upstream.url });
    const headers = { 'x-credit-account': await gateway.fund(500) };
    for (const { id, upstreamModel, voices } of models) {
      assert.ok(recipe.includes(`\`${upstreamModel}\``), `docs/recipes.md names ${upstreamModel}`);
      for (const voice of voices) {
        const json = { text: 'Hello world', model: id, voice: voice.id, speed: 1.5 };
        assert.equal((await gateway.call('/tts', { method: 'POST', headers, json })).status, 200);
        assert.deepEqual(upstream.requests.at(-1)?.body, {
          ...{ model: upstreamModel, input: 'Hello world', voice: voice.upstreamVoice, speed: 1.5 },
          response_format: 'mp3',
        });
      }
    }
  });
}
