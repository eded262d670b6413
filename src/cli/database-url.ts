import { resolve } from 'node:path';
import { readSandboxFile } from '../sandbox/sandbox-file.ts';

const EXIT_CONFIG = 78;

/** DATABASE_URL, or the end of the process with the fix. */
export function databaseUrl(): string {
  const url = process.env.DATABASE_URL?.trim();
  if (url) return url;
  console.error('DATABASE_URL is not set. Set it to postgres://user:password@host:5432/database.');
  process.exit(EXIT_CONFIG);
}

/** Likewise, for a program that only looks: without DATABASE_URL it is that of the running sandbox, which is said. */
export async function databaseToLookInto(): Promise<string> {
  const dataDir = resolve(process.env.DATA_DIR ?? './data');
  const sandbox = process.env.DATABASE_URL?.trim() ? undefined : await readSandboxFile(dataDir);
  if (!sandbox?.databaseUrl) return databaseUrl();
  console.error(`DATABASE_URL is not set: this is the sandbox in ${dataDir}.`);
  return sandbox.databaseUrl;
}
