/** What docs/clients.md quotes of examples/, which test/installing runs, is what stands there. */
import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { test } from 'tap';

const read = (path: string): Promise<string> => readFile(new URL(`../../${path}`, import.meta.url), 'utf8');

/** A paragraph that names an example, and the block below it. */
const QUOTE = /(?:^(?!```).+\n)*^.*\((?:\.\.\/)?(examples\/[\w./-]+)\)(?:.*\n)(?:^(?!```).+\n)*\n```\w+\n(.*?)^```$/gms;

test('docs/clients.md: the programs in it are those of examples/', async () => {
  const quotes = [...(await read('docs/clients.md')).matchAll(QUOTE)];
  assert.deepEqual(
    quotes.map(([, file]) => file),
    ['card', 'direct', 'prepaid', 'openai'].map((name) => `examples/${name}.mjs`).concat('examples/mcp.json'),
  );
  for (const [, file = '', code] of quotes) assert.equal(code, await read(file), file);
});
