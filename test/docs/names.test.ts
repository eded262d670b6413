import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { readdir, readFile } from 'node:fs/promises';
import { test } from 'tap';
import { readConfig } from '../../src/settings/config.ts';

const PROJECT = new URL('../../', import.meta.url);
const documents = [
  'README.md',
  'SECURITY.md',
  'CHANGELOG.md',
  ...(await readdir(new URL('docs/', PROJECT), { recursive: true }))
    .filter((name) => name.endsWith('.md'))
    .map((name) => `docs/${name.replaceAll('\\', '/')}`),
];

const read = (path: string): Promise<string> => readFile(new URL(path, PROJECT), 'utf8');

for (const document of documents) {
  test(`${document}: the scripts and files that it names are there`, async () => {
    const text = await read(document);
    const { scripts } = JSON.parse(await read('package.json'));
    const named = [...text.matchAll(/npm run (?:-s |--silent )?([\w:]*\w)/g)].map(([, name]) => name as string);
    assert.deepEqual(
      named.filter((name) => !(name in scripts)),
      [],
    );
    const files = [...text.matchAll(/\b(?:src|test|docs|db|codegen|\.ci|catalogs)\/[\w/.-]*[\w/]/g)].map(
      ([path]) => path,
    );
    assert.deepEqual(
      files.filter((path) => !existsSync(new URL(path, PROJECT))),
      [],
    );
    for (const [, link = ''] of text.matchAll(/\]\((?!https?:)([^)#]+)\)/g)) {
      assert.ok(existsSync(new URL(link, new URL(document, PROJECT))), link);
    }
  });
}

test('docs/operations.md: its table has every setting that the service reads, and no other', async () => {
  const known = new Set<string>();
  readConfig(new Proxy({}, { get: (_env, name) => void known.add(String(name)), ownKeys: () => [] }));
  const [, table = ''] = (await read('docs/operations.md')).split(/^## /m);
  const listed = [...table.matchAll(/^\| (.+?) \|/gm)].flatMap(([, cell = '']) => [...cell.matchAll(/`(\w+)`/g)]);
  // Those that only commands read.
  known.add('DATABASE_APP_ROLE');
  known.add('SPEECHGATE_OPERATOR');
  assert.deepEqual(listed.map(([, name]) => name).sort(), [...known].sort());
});
