import { symlink } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { test } from 'tap';
import { startCommand } from '../support/child.ts';
import { PACK } from '../support/installed-package.ts';
import { projectFile } from '../support/project.ts';
import { copyProject } from '../support/project-copy.ts';

test('npm pack makes the program, types for callers, SQL files and the tested versions', async (t) => {
  const copy = await copyProject(t);
  await symlink(fileURLToPath(projectFile('node_modules')), join(copy, 'node_modules'));
  const packed = startCommand(t, [...PACK, '--dry-run', '--json'], { cwd: copy });
  t.equal(await packed.ended(), 0, packed.output());
  const listed: string = packed.output().slice(packed.output().indexOf('[\n'));
  const [{ files }] = JSON.parse(listed) as [{ files: { path: string; mode: number }[] }];
  const modeOf = (path: string) => files.find((file) => file.path === path)?.mode.toString(8);
  t.equal(modeOf('dist/speechgate.js'), '755');
  const read = ['dist/callers/client/index.d.ts', 'db/audit/201_holds.sql', 'db/migrations/0001_ledger.sql'];
  for (const path of [...read, 'npm-shrinkwrap.json']) t.equal(modeOf(path), '644', path);
});
