/** Every step of the code has a proof that kills the process there. */
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { type Test, test } from 'tap';
import { KILL_POINTS } from '../support/kills.ts';
import { projectFile } from '../support/project.ts';
import { readSteps, stepsIn } from '../support/steps.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';

const PROJECT = projectFile('');

const steps = readSteps();
const kills = Object.values(KILL_POINTS).flat() as string[];

test('every step of the code has a proof that kills the process there', async (t) => {
  const unproved = steps.filter(({ name }) => !kills.includes(name)).map(({ name, place }) => `${name} (${place})`);
  t.strictSame(unproved, []);
});

test('no proof names a step that does not exist', async (t) => {
  const names = new Set(steps.map(({ name }) => name));
  t.strictSame(
    kills.filter((kill) => !names.has(kill)),
    [],
  );
});

test('each step name stands at one place in the code', async (t) => {
  const places = new Map<string, string[]>();
  for (const { name, place } of steps) places.set(name, [...(places.get(name) ?? []), place]);
  t.strictSame(
    [...places].filter(([, of]) => of.length > 1),
    [],
  );
});

test('each proof takes its cases from the shared list', async (t) => {
  for (const proof of Object.keys(KILL_POINTS)) {
    const source = await readFile(new URL(proof, PROJECT), 'utf8');
    t.match(source, new RegExp(`killCases(<[^;]*?>)?\\(\\s*'${proof}'`), proof);
  }
});

async function stepsOf(t: Test, source: string) {
  const directory = await temporaryFolder(t);
  const file = join(directory, 'code.ts');
  await writeFile(file, source);
  return stepsIn(file);
}

test('a template step expands to all its names, and an unknown name is an error', async (t) => {
  const steps = await stepsOf(
    t,
    `type End = { kind: 'done' } | { kind: 'lost' };
async function end(make: () => Promise<End>) {
  const it = await make();
  testPoint(\`work \${it.kind}\`);
  testPoint('work told');
}`,
  );
  t.strictSame(steps, [
    { name: 'work done', line: 4 },
    { name: 'work lost', line: 4 },
    { name: 'work told', line: 5 },
  ]);
  await t.rejects(stepsOf(t, 'function end(kind: string) { testPoint(`work ${' + 'kind}`); }'), /does not tell/);
  await t.rejects(stepsOf(t, 'function end(kind: string) { testPoint(kind); }'), /not the name of a step/);
});
