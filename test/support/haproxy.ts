import { accessSync } from 'node:fs';
import { delimiter, join } from 'node:path';

/** Debian puts HAProxy where only root looks. */
const FOLDERS = [...(process.env.PATH ?? '').split(delimiter), '/usr/sbin'];

const pathOf = (program: string): string | undefined =>
  FOLDERS.map((folder) => join(folder, program)).find((path) => {
    try {
      accessSync(path);
      return true;
    } catch {
      return false;
    }
  });

export const HAPROXY = pathOf('haproxy') ?? '';

/** Why tests with HAProxy are skipped; false where it is installed. */
export const withoutHaproxy: string | false =
  HAPROXY && pathOf('socat') ? false : 'HAProxy or socat is not installed (apt-get install haproxy socat)';

/** Whether a command in a document is for HAProxy's own socket. */
export const speaksToHaproxy = (command: string): boolean => command.includes('socat stdio');
