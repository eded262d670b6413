/** What docs/clients.md quotes of examples/, which test/installing runs, is what stands there. */
import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { test } from 'tap';

const read = (path: string): Promise<string> => readFile(new URL(`../../${path}`, import.meta.url), 'utf8');

test('docs/clients.md: the programs in it are those of examples/', async () => {
  const text = await read('docs/clients.md');
  const quoted: string[] = [];
  for (const { index, 1: code } of text.matchAll(/^```\w+\n(.*?)^```$/gms)) {
    const paragraph = text.slice(0, index).trimEnd().split('\n\n').at(-1) ?? '';
    const [, file] = /\(\.\.\/(examples\/[\w.-]+)\)/.exec(paragraph) ?? [];
    if (file === undefined) continue;
    assert.equal(code, await read(file), file);
    quoted.push(file);
  }
  assert.deepEqual(
    quoted,
    ['card.mjs', 'direct.mjs', 'prepaid.mjs', 'openai.mjs', 'mcp.json'].map((name) => `examples/${name}`),
  );
});
