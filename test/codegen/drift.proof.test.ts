import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { appendFile, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'tap';
import { generate } from '../../codegen/generate.ts';
import { fixture, workspace } from './fixture.ts';

interface Outcome {
  code: number;
  output: string;
}

test('--check fails and lists files that differ, are missing or are extra', async (t) => {
  const directory = await workspace(t);
  const contract = join(directory, 'openapi.yaml');
  const out = join(directory, 'contract');
  await writeFile(contract, JSON.stringify(fixture()));
  const codegen = (...args: string[]) =>
    new Promise<Outcome>((done) => {
      const argv = ['--import', 'tsx', 'codegen/main.ts', '--contract', contract, '--out', out, ...args];
      execFile(process.execPath, argv, (error, stdout, stderr) =>
        done({ code: error === null ? 0 : Number(error.code), output: stdout + stderr }),
      );
    });

  assert.deepEqual(await codegen(), { code: 0, output: '' });
  assert.deepEqual(await codegen('--check'), { code: 0, output: '' });

  await appendFile(join(out, 'routes.ts'), '// edited\n');
  await rm(join(out, 'types.ts'));
  await writeFile(join(out, 'notes.txt'), 'kept');
  const drifted = await codegen('--check');
  assert.equal(drifted.code, 1);
  assert.match(drifted.output, /missing: types\.ts\ndiffers: routes\.ts\nextra: {3}notes\.txt\n/);
  assert.ok(!(await readdir(out)).includes('types.ts'), '--check writes nothing');

  await writeFile(contract, JSON.stringify({ ...fixture(), openapi: '3.1.0' }));
  const refused = await codegen();
  assert.equal(refused.code, 1);
  assert.match(refused.output, /^The contract has 1 mistake/);
});

test('src/contract matches openapi.yaml', async () => {
  const wanted = await generate(await readFile('openapi.yaml', 'utf8'));
  assert.deepEqual((await readdir('src/contract')).sort(), [...wanted.keys()].sort());
  for (const [name, text] of wanted) {
    assert.ok((await readFile(join('src/contract', name), 'utf8')) === text, `${name} differs; run: npm run codegen`);
  }
});
