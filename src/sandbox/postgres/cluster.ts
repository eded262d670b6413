import { spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { chown, mkdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import type { Account } from './account.ts';
import type { Binaries } from './binaries.ts';
import { createWhole } from './staging.ts';
import { hasCode } from './system-error.ts';

/** A database cluster on disk. */
export interface Cluster {
  /** PostgreSQL's data directory. */
  readonly data: string;
  /** Of the only role, `speechgate`, which is a superuser. */
  readonly password: string;
}

export const ROLE = 'speechgate';

/**
 * The cluster in `home`, which is created when there is none. Its password lives beside its data, so that one can't be
 * lost without the other.
 */
export async function openCluster(
  home: string,
  binaries: Binaries,
  account: Account,
  durable: boolean,
  onProgress: (message: string) => void,
): Promise<Cluster> {
  const directory = join(home, 'cluster');
  const data = join(directory, 'data');
  let version = await versionOf(data);
  if (version === undefined) {
    onProgress('Creating the embedded database');
    await createWhole(directory, (fresh) => fillCluster(fresh, binaries, account, durable));
    version = await versionOf(data);
  }
  if (version !== binaries.majorVersion) {
    throw new Error(
      `The database in ${home} was made by PostgreSQL ${version ?? '(unknown)'}, and the one installed is ${binaries.majorVersion}, which can't open it. ` +
        'Move that directory away to start with an empty database, or choose another DATA_DIR.',
    );
  }
  return { data, password: await readFile(join(directory, 'password'), 'utf8') };
}

async function versionOf(data: string): Promise<string | undefined> {
  try {
    return (await readFile(join(data, 'PG_VERSION'), 'utf8')).trim();
  } catch (error) {
    if (hasCode(error, 'ENOENT')) return undefined;
    throw error;
  }
}

async function fillCluster(directory: string, binaries: Binaries, account: Account, durable: boolean): Promise<void> {
  const passwordFile = join(directory, 'password');
  const data = join(directory, 'data');
  await writeFile(passwordFile, randomBytes(24).toString('base64url'), { mode: 0o600 });
  await mkdir(data, { mode: 0o700 });
  for (const path of [directory, passwordFile, data]) await chown(path, account.uid, account.gid);

  await run(
    binaries.initdb,
    [
      `--pgdata=${data}`,
      `--username=${ROLE}`,
      `--pwfile=${passwordFile}`,
      '--auth=scram-sha-256',
      '--encoding=UTF8',
      '--locale=C',
      '--locale-provider=builtin',
      '--builtin-locale=C.UTF-8',
      '--no-instructions',
      ...(durable ? [] : ['--no-sync']),
    ],
    account,
  );
}

/** How PostgreSQL's programs are run: as the account, without the PG* variables and the secrets of this process. */
export const surroundings = (account: Account) => ({
  ...account.identity,
  cwd: '/',
  env: { LC_ALL: 'C', PATH: process.env.PATH ?? '' },
  windowsHide: true,
});

async function run(program: string, parameters: string[], account: Account): Promise<void> {
  const child = spawn(program, parameters, {
    ...surroundings(account),
    stdio: ['ignore', 'ignore', 'pipe'],
  });
  const ended = new Promise<number | null>((resolve, reject) => {
    child.once('error', (error) => reject(cannotRun(program, error)));
    child.once('close', resolve);
  });
  const [code, complaint] = await Promise.all([ended, text(child.stderr)]);
  if (code !== 0) throw new Error(`${program} failed with ${code ?? 'a signal'}: ${complaint.trim()}`);
}

/** The error for a program that could not even be started. */
export function cannotRun(program: string, cause: Error): Error {
  return new Error(
    `${program} can't be run here (${cause.message}). It needs a glibc system and, as root, the right to change to the user nobody: ` +
      'run as an ordinary user, or set SANDBOX_DATABASE_URL.',
  );
}
