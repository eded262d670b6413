import { execFileSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdtemp, rm, symlink } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { Owner } from './child.ts';
import { FIRST_RELEASE } from './migrations.ts';
import type { Release } from './replicas.ts';

const PROJECT = fileURLToPath(new URL('../..', import.meta.url));
const MIGRATIONS = 'db/migrations';

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

/** A state of the code that had an earlier schema: the last one that had it. */
export interface FormerRelease {
  readonly commit: string;
  /** Names of its migrations, in their order. */
  readonly migrations: readonly string[];
}

/**
 * What the history has of earlier schemas since the first release, the oldest first. States whose migrations have another
 * text today, or lack a lower number, are left out: they came to nobody, since their migrations were still being changed.
 */
export function formerReleases(): FormerRelease[] {
  const today = migrationsAt('HEAD');
  const changes = git('log', '--first-parent', '-m', '--reverse', '--format=%H %P', '--', MIGRATIONS).split('\n');
  const before = changes.flatMap((line) => line.split(' ')[1] ?? []);
  return [...new Set(before)]
    .map((commit) => ({ commit, migrations: migrationsAt(commit) }))
    .filter(({ migrations }) => migrations.length < today.length && migrations.every((line, at) => line === today[at]))
    .map(({ commit, migrations }) => ({ commit, migrations: migrations.map(nameOf) }))
    .filter(({ migrations }) => migrations.includes(FIRST_RELEASE));
}

/** Hashes and names, in their order. */
const migrationsAt = (commit: string): string[] => git('ls-tree', commit, `${MIGRATIONS}/`).split('\n').filter(Boolean);

const nameOf = (line: string): string => line.slice(line.lastIndexOf('/') + 1, -'.sql'.length);

/** What `npm run migrate` comes to in that release. */
export function migrateCommand({ folder, command }: Release): string[] {
  const programs = ['src/cli/migrate-command.ts', 'src/cli/migrate.ts'];
  return command(programs.find((program) => existsSync(join(folder ?? PROJECT, program))) as string);
}
