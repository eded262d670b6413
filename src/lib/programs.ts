import { constants } from 'node:fs';
import { access } from 'node:fs/promises';
import { delimiter, join } from 'node:path';

export async function findProgram(name: string, env: NodeJS.ProcessEnv = process.env): Promise<string | undefined> {
  const file = process.platform === 'win32' ? `${name}.exe` : name;
  for (const folder of (env.PATH ?? '').split(delimiter).filter(Boolean)) {
    const path = join(folder, file);
    const isThere = await access(path, constants.X_OK).then(
      () => true,
      () => false,
    );
    if (isThere) return path;
  }
  return undefined;
}

/** The environment for third-party programs: without the caller's settings, some of which are secrets. */
export const childEnv = (env: NodeJS.ProcessEnv = process.env): NodeJS.ProcessEnv =>
  Object.fromEntries(Object.entries(env).filter(([name]) => !name.toUpperCase().startsWith('SPEECHGATE_')));
