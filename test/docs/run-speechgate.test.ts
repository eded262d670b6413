/** Nobody owns the name speechgate in the registry: nothing may tell people or programs to fetch and run it. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import { test } from 'tap';

const PROJECT = new URL('../../', import.meta.url);
/** Runs what is not installed: all but `npx --no --`, which fails instead. */
const FETCHES = [
  /\b(?:npx|bunx|(?:npm|pnpm|yarn) (?:exec|x|dlx|create|init))\s+(?!--no -- )(?:-\S+\s+)*(?:--package[= ])?speechgate\b/g,
  /\bnpx (?:-y|--yes)\b/g,
  /(["'])npx\1/g,
];

const fetches = (text: string): string[] => FETCHES.flatMap((pattern) => text.match(pattern) ?? []);

test('no file tells anybody to run the name from the registry', async () => {
  const files = execFileSync('git', ['ls-files', '-z'], { cwd: PROJECT, encoding: 'utf8' }).split('\0').filter(Boolean);
  assert.ok(files.includes('README.md'));
  for (const file of files) {
    const text = await readFile(new URL(file, PROJECT), 'utf8').catch(() => '');
    assert.deepEqual(fetches(text), [], file);
  }
});

test('a call that would fetch is told from one that would not', async () => {
  const [name, npx] = ['speechgate', ['np', 'x'].join('')];
  for (const call of [`${npx} ${name}`, `${npx} -y ${name}`, `${npx}\n${name} mcp`, `npm exec ${name}`, `"${npx}"`]) {
    assert.ok(fetches(call).length > 0, call);
  }
  for (const call of [`${npx} --no -- ${name}`, `node bin/${name}.js`, `${npx} mppx@0.11.0`, `${name} bridge`]) {
    assert.deepEqual(fetches(call), [], call);
  }
});
