import { dataDir } from '../sandbox/sandbox-file.ts';
import { readSandboxSettings } from '../sandbox/settings-file.ts';
import { endWith } from './arguments.ts';

/**
 * What an operators' command works with: the environment, and where that names no database the settings of the running
 * sandbox too, which is said.
 */
export async function commandSettings(): Promise<NodeJS.ProcessEnv> {
  if (process.env.DATABASE_URL?.trim()) return process.env;
  const sandbox = await readSandboxSettings(dataDir).catch((error) => endWith(error.message));
  if (!sandbox) {
    console.error(`No sandbox runs in ${dataDir}.`);
    return process.env;
  }
  console.error(`DATABASE_URL is not set: this is the sandbox in ${dataDir}.`);
  return { ...process.env, ...sandbox };
}

/** DATABASE_URL of these settings, or the end of the process with the fix. */
export function databaseUrlOf(settings: NodeJS.ProcessEnv): string {
  const url = settings.DATABASE_URL?.trim();
  if (url) return url;
  endWith('DATABASE_URL is not set. Set it to postgres://user:password@host:5432/database.');
}
