import { lstat, readlink, realpath } from 'node:fs/promises';
import { dirname, isAbsolute, join } from 'node:path';
import { ForeignFileError } from './private-files.ts';

const ROOT_UID = 0;
const MAX_LINKS = 40;

/** Follows only links of this user and of root; others could lead anywhere. @throws ForeignFileError */
export async function followOwnLinks(path: string): Promise<string> {
  const own = process.geteuid?.();
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
      throw new ForeignFileError(`${next} is a link of another user (user id ${status.uid})`);
    }
    if (++links > MAX_LINKS) throw new ForeignFileError(`${next} leads through more than ${MAX_LINKS} links`);
    const target = await readlink(next);
    if (isAbsolute(target)) place = '/';
    names.unshift(...target.split('/'));
  }
  return place;
}

/** Whether the path is an open file of this process, which is trusted regardless of its owner. */
export const isDescriptor = (path: string): boolean =>
  new RegExp(`^/(dev|proc/self|proc/${process.pid})/fd/\\d+$`).test(path);
