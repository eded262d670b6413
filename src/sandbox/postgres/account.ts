import { readFile, stat } from 'node:fs/promises';
import { dirname } from 'node:path';

/** The operating system's account that the database server runs as. */
export interface Account {
  readonly uid: number;
  readonly gid: number;
  /** What child_process needs to become the account; empty when this process is that account already. */
  readonly identity: { readonly uid?: number; readonly gid?: number };
}

/** On Windows users have no ids, and every file says that its owner's is 0. */
const WITHOUT_IDS: Account = { uid: 0, gid: 0, identity: {} };

/**
 * PostgreSQL refuses to run as root, so root hands it to `nobody`, which exists everywhere; anybody else runs it
 * under their own name.
 */
export async function serverAccount(): Promise<Account> {
  const { getuid, getgid } = process;
  if (!getuid || !getgid) return WITHOUT_IDS;
  if (getuid() !== 0) return { uid: getuid(), gid: getgid(), identity: {} };
  const account = nobody(await readFile('/etc/passwd', 'utf8'));
  if (!account) {
    throw new Error(
      'PostgreSQL refuses to run as root and /etc/passwd has no account `nobody`: run as an ordinary user, or set SANDBOX_DATABASE_URL.',
    );
  }
  return account;
}

/** The account `nobody` of this text of /etc/passwd; undefined when there is none. */
export function nobody(passwd: string): Account | undefined {
  const entry = passwd.split('\n').find((line) => line.startsWith('nobody:'));
  const [, , uid, gid] = (entry ?? '').split(':').map(Number);
  // On macOS the ids are -2: so a process takes them, and a file shows them without a sign.
  return uid && gid ? { uid: uid >>> 0, gid: gid >>> 0, identity: { uid, gid } } : undefined;
}

const SEARCH = 1;
const READ = 4;

/**
 * The innermost directory on the way to `path`, or `path` itself, that the account may not enter or read; undefined
 * when it gets there. Judged by the permission bits, without access control lists.
 */
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
