import { open } from 'node:fs/promises';
import { text as readAll } from 'node:stream/consumers';
import { UsageError } from '../usage-error.ts';

const OTHERS = 0o077;

/**
 * A secret, which is never an argument: from standard input for `-`, else from a pipe, or a file that only this user can
 * read.
 * @param name of the option
 * @throws UsageError
 */
export async function readSecret(place: string, name: string): Promise<string> {
  const text = place === '-' ? await readAll(process.stdin) : await readPrivate(place, name);
  return text.trim();
}

async function readPrivate(path: string, name: string): Promise<string> {
  const unreadable = () =>
    new UsageError(`${name} takes a file, or - for standard input; the file that it names can't be read.`);
  const file = await open(path).catch(() => {
    throw unreadable();
  });
  try {
    const status = await file.stat();
    // Of a pipe nothing stays that others could read; where users have no ids, nothing can be told.
    const own = status.isFile() ? process.geteuid?.() : undefined;
    if (own !== undefined && (status.uid !== own || (status.mode & OTHERS) !== 0)) {
      throw new UsageError(
        `${name}: ${path} is open to other users of this machine, or is theirs. Nothing was kept of it. ` +
          `Use a new secret, or run chmod 600 '${path}' if nobody has read it.`,
      );
    }
    return await file.readFile('utf8').catch(() => {
      throw unreadable();
    });
  } finally {
    await file.close();
  }
}
