/** docs/threats.md is the model of what may fail or cheat: each actor is in it, and each of its rows is tried by a test. */
import assert from 'node:assert/strict';
import { readdir, readFile } from 'node:fs/promises';
import { test } from 'tap';

const PROJECT = new URL('../../', import.meta.url);
const ROW = /^\| (?<what>.+?) \| (?<promise>.+) \| `(?<file>test\/[^`]+)`: (?<name>.+) \|$/;
const HEAD = '| what fails or cheats | promise | test |';
const ACTORS = [
  'The caller',
  'The payer',
  'The facilitator',
  "The chain's node",
  'The card processor',
  'The upstream',
  'The network',
  'The clock',
  'The disk',
  'The database',
  'The operator',
  'Our own process',
];
/** Each test of these folders breaks or attacks a part on purpose. */
const FOLDERS = ['test/attacks', 'test/faults'];

/** The rows by the actor under whose heading they stand. */
async function readModel(): Promise<ReadonlyMap<string, readonly string[]>> {
  const text = await readFile(new URL('docs/threats.md', PROJECT), 'utf8');
  const sections = text.split(/^## /m).slice(1);
  return new Map(
    sections.map((section) => {
      const [title = '', ...lines] = section.split('\n');
      return [title, lines.filter((line) => line.startsWith('| ') && line !== HEAD)];
    }),
  );
}

const model = await readModel();
const rows = ACTORS.flatMap((actor) => model.get(actor) ?? []);

/** The source of a test's name as it stands in the file: "…" is what a template fills in. */
const pattern = (name: string): RegExp =>
  new RegExp(
    `test\\(\\s*(['"\`])${name
      .split('…')
      .map((part) => part.replaceAll("'", '\u0000').replace(/[.*+?^${}()|[\]\\]/g, '\\$&'))
      .map((part) => part.replaceAll('\u0000', "\\\\?'"))
      .join('\\$\\{[^}]+\\}')}\\1`,
  );

test('each actor has its section, in this order, with rows of its own', async () => {
  assert.deepEqual([...model.keys()].slice(0, ACTORS.length), ACTORS);
  for (const actor of ACTORS) assert.ok((model.get(actor) ?? []).length >= 4, actor);
});

test('each threat names a test that is there', async () => {
  for (const row of rows) {
    const { file = '', name = '' } = ROW.exec(row)?.groups ?? {};
    assert.notEqual(file, '', `names no test: ${row}`);
    const source = await readFile(new URL(file, PROJECT), 'utf8');
    assert.match(source, pattern(name), `${file} has no test of that name: ${name}`);
  }
});

test('each test file that breaks or attacks a part is named by a threat', async () => {
  const named = new Set(rows.map((row) => ROW.exec(row)?.groups?.file));
  for (const folder of FOLDERS) {
    const files = (await readdir(new URL(`${folder}/`, PROJECT))).filter((file) => file.endsWith('.test.ts'));
    assert.ok(files.length > 0);
    for (const file of files) assert.ok(named.has(`${folder}/${file}`), `${folder}/${file}`);
  }
});

test('no threat stands there twice', async () => {
  const tried = rows.map((row) => ROW.exec(row)?.groups?.what);
  assert.deepEqual(
    tried.filter((what, index) => tried.indexOf(what) !== index),
    [],
  );
});
