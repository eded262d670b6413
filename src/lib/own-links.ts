import { lstat, readlink, realpath } from 'node:fs/promises';
import { dirname, isAbsolute, join } from 'node:path';
import { ForeignFileError } from './private-files.ts';

const ROOT_UID = 0;
/** As many as Linux follows. */
const MAX_LINKS = 40;

/**
 * Follows the links of a path as the system does, but only this user's and root's: another one's could lead anywhere.
 * Returns the path without links; its end need not exist. An open descriptor of this process (`/dev/stdout`) stays as it is.
 * @throws ForeignFileError
 */
export async function followOwnLinks(path: string): Promise<string> {
  const own = process.geteuid?.();
  // Where users have no ids, nothing can be told.
  if (own === undefined) return realpath(path).catch(() => path);
  let place = '/';
  const names = (isAbsolute(path) ? path : `${process.cwd()}/${path}`).split('/');
  for (let links = 0; names.length > 0; ) {
    const name = names.shift() as string;
    const next = name === '..' ? dirname(place) : join(place, name);
    if (isDescriptor(next)) return next;
    const status = await lstat(next).catch(() => undefined);
    if (!status?.isSymbolicLink()) {
      place = next;
      continue;
    }
    if (![own, ROOT_UID].includes(status.uid)) {
      throw new ForeignFileError(`${next} is a link of user id ${status.uid}, which could lead anywhere`);
    }
    if (++links > MAX_LINKS) throw new ForeignFileError(`${next} leads through too many links`);
    const target = await readlink(next);
    if (isAbsolute(target)) place = '/';
    names.unshift(...target.split('/'));
  }
  return place;
}

/** Whether the path names an open file of this process: it was given to it, whoever owns it. */
export const isDescriptor = (path: string): boolean =>
  new RegExp(`^/(dev|proc/self|proc/${process.pid})/fd/\\d+$`).test(path);
