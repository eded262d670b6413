import { execFileSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdtemp, rm, symlink } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { Owner } from './child.ts';
import type { Release } from './replicas.ts';

const PROJECT = fileURLToPath(new URL('../..', import.meta.url));

const git = (...args: string[]): string => execFileSync('git', args, { cwd: PROJECT, encoding: 'utf8' }).trim();

/** The code of an earlier commit, with the packages of today, in a folder that goes with its owner. */
export async function formerRelease(t: Owner, commit: string): Promise<Release> {
  const folder = await mkdtemp(join(tmpdir(), 'speechgate-former-'));
  t.teardown(() => rm(folder, { recursive: true, force: true }));
  execFileSync('sh', ['-c', 'git archive "$1" | tar -x -C "$2"', 'sh', commit, folder], { cwd: PROJECT });
  await symlink(join(PROJECT, 'node_modules'), join(folder, 'node_modules'));
  return {
    folder,
    command: (program, ...args) => [process.execPath, '--import', 'tsx', program, ...args],
  };
}

/** The commit before the one that brought this migration; undefined where the history does not go back to it. */
export function commitBefore(migration: string): string | undefined {
  const file = `db/migrations/${migration}.sql`;
  const added = git('log', '--first-parent', '-m', '--diff-filter=A', '--format=%H %P', '--', file).split('\n').at(-1);
  return added?.split(' ')[1];
}

/** What `npm run migrate` comes to in that release. */
export function migrateCommand({ folder, command }: Release): string[] {
  const programs = ['src/cli/migrate-command.ts', 'src/cli/migrate.ts'];
  return command(programs.find((program) => existsSync(join(folder ?? PROJECT, program))) as string);
}
