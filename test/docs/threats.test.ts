import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { test } from 'tap';

const PROJECT = new URL('../../', import.meta.url);
const ROW = /^\|.*\| `(?<file>test\/[^`]+)`: (?<name>.+) \|$/;

/** The source of a test's name as it stands in the file: "…" is what a template fills in. */
const pattern = (name: string): RegExp =>
  new RegExp(
    `test\\(\\s*(['"\`])${name
      .split('…')
      .map((part) => part.replaceAll("'", '\u0000').replace(/[.*+?^${}()|[\]\\]/g, '\\$&'))
      .map((part) => part.replaceAll('\u0000', "\\\\?'"))
      .join('\\$\\{[^}]+\\}')}\\1`,
  );

test('each threat names a test that is there', async () => {
  const text = await readFile(new URL('docs/threats.md', PROJECT), 'utf8');
  const rows = text.split('\n').filter((line) => line.startsWith('| ') && !/^\| attack/.test(line));
  assert.ok(rows.length >= 50);
  for (const row of rows) {
    const { file = '', name = '' } = ROW.exec(row)?.groups ?? {};
    assert.notEqual(file, '', `names no test: ${row}`);
    const source = await readFile(new URL(file, PROJECT), 'utf8');
    assert.match(source, pattern(name), `${file} has no test of that name: ${name}`);
  }
});
