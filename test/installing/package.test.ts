import { cp, mkdir, readFile, symlink } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { test } from 'tap';
import { startCommand } from '../support/child.ts';
import { PACK } from '../support/installed-package.ts';
import { PROJECT, projectFile } from '../support/project.ts';
import { copyProject } from '../support/project-copy.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';

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

test('R47: a bucket without the AWS SDK is a fault, and its fix is the command', async (t) => {
  const folder = await temporaryFolder(t);
  for (const name of ['dist', 'package.json']) await cp(join(PROJECT, name), join(folder, name), { recursive: true });
  const { dependencies } = JSON.parse(await readFile(projectFile('package.json'), 'utf8'));
  for (const name of Object.keys(dependencies)) {
    const link = join(folder, 'node_modules', name);
    await mkdir(dirname(link), { recursive: true });
    await symlink(join(PROJECT, 'node_modules', name), link);
  }
  for (const program of [['dist/main.js'], ['dist/speechgate.js', 'doctor']]) {
    const env = { AUDIO_STORE: 's3://voices' };
    const started = startCommand(t, [process.execPath, ...program], { cwd: folder, env });
    t.equal(await started.ended(), 78, started.output());
    t.match(started.output(), /AUDIO_STORE .*names a bucket, but @aws-sdk\/client-s3 is not installed\./);
    t.match(started.output(), '`npm install @aws-sdk/client-s3@3 --save-prod --omit=dev --omit=optional`');
    t.match(started.output(), /DATABASE_URL .*is not set/, 'with every other fault');
  }
});
