import assert from 'node:assert/strict';
import { join } from 'node:path';
import type { Test } from 'tap';
import { startCommand } from '../../test/support/child.ts';
import { temporaryFolder } from '../../test/support/temporary-folder.ts';

const PACKAGE = `node-${process.platform}-${process.arch}`;

/** The program of another Node.js, which is fetched for the test. */
export async function installNode(t: Test, major: number): Promise<string> {
  const folder = await temporaryFolder(t);
  const command = ['npm', 'install', `--prefix=${folder}`, '--no-audit', `${PACKAGE}@${major}`];
  const installed = startCommand(t, command, {});
  assert.equal(await installed.ended(), 0, installed.output());
  return join(folder, 'node_modules', PACKAGE, 'bin', 'node');
}
