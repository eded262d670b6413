import { readFile, stat } from 'node:fs/promises';
import { dirname } from 'node:path';

export interface Account {
  readonly uid: number;
  readonly gid: number;
  readonly identity: { readonly uid?: number; readonly gid?: number };
}

/** Windows has no user ids, and reports 0 as the owner of every file. */
const WITHOUT_IDS: Account = { uid: 0, gid: 0, identity: {} };

/** PostgreSQL refuses to run as root, so root runs it as `nobody`. */
export async function serverAccount(): Promise<Account> {
  const { getuid, getgid } = process;
  if (!getuid || !getgid) return WITHOUT_IDS;
  if (getuid() !== 0) return { uid: getuid(), gid: getgid(), identity: {} };
  const account = nobody(await readFile('/etc/passwd', 'utf8'));
  if (!account) {
    throw new Error(
      'PostgreSQL refuses to run as root, and /etc/passwd has no account `nobody`. Start the sandbox as another user than root, or set SANDBOX_DATABASE_URL.',
    );
  }
  return account;
}

export function nobody(passwd: string): Account | undefined {
  const entry = passwd.split('\n').find((line) => line.startsWith('nobody:'));
  const [, , uid, gid] = (entry ?? '').split(':').map(Number);
  // On macOS the ids are -2: a process takes the negative number, and a file shows it as unsigned.
  return uid && gid ? { uid: uid >>> 0, gid: gid >>> 0, identity: { uid, gid } } : undefined;
}

const SEARCH = 1;
const READ = 4;

/** The innermost directory on the path that the account cannot enter or read. Checks permission bits only. */
export async function obstacle(path: string, account: Account): Promise<string | undefined> {
  if (account.identity.uid === undefined) return undefined;
  for (let step = path; ; step = dirname(step)) {
    const status = await stat(step);
    const wanted = status.isDirectory() ? SEARCH : READ;
    const shift = status.uid === account.uid ? 6 : status.gid === account.gid ? 3 : 0;
    if (!((status.mode >> shift) & wanted)) return step;
    if (step === dirname(step)) return undefined;
  }
}

/** Runs as the account, without the PG* variables and secrets of this process. */
export const spawnOptions = (account: Account) => ({
  ...account.identity,
  cwd: '/',
  env: { LC_ALL: 'C', PATH: process.env.PATH ?? '' },
  windowsHide: true,
});

export function cannotRun(program: string, cause: Error): Error {
  return new Error(
    `${program} can't run on this machine (${cause.message}): it needs glibc and, as root, the right to change to the user nobody. ` +
      'Start the sandbox as another user than root, or set SANDBOX_DATABASE_URL.',
  );
}
