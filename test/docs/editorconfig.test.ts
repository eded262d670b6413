import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { test } from 'tap';

const PROJECT = new URL('../../', import.meta.url);

test('.editorconfig says what biome.json says', async () => {
  const { formatter } = JSON.parse(await readFile(new URL('biome.json', PROJECT), 'utf8'));
  const text = await readFile(new URL('.editorconfig', PROJECT), 'utf8');
  const settings = Object.fromEntries([...text.matchAll(/^(\w+) = (.+)$/gm)].map(([, name, value]) => [name, value]));
  const { indent_style, indent_size, max_line_length } = settings;
  assert.deepEqual(
    { indentStyle: indent_style, indentWidth: Number(indent_size), lineWidth: Number(max_line_length) },
    formatter,
  );
});
