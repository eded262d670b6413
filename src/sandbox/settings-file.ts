import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { readUnsharedFile, replaceOwnFile } from '../lib/private-files.ts';

const file = (dataDir: string): string => join(dataDir, 'settings.json');

/** The variables that the sandbox has set for its gateway, by name. */
export type SandboxSettings = Readonly<Record<string, string>>;

/** Keeps them for the operators' commands, which take them where the environment names no database. */
export async function writeSandboxSettings(dataDir: string, settings: SandboxSettings): Promise<void> {
  await replaceOwnFile(file(dataDir), `${JSON.stringify(settings, null, 2)}\n`);
}

/** A sandbox that does not run has none. */
export const removeSandboxSettings = (dataDir: string): Promise<void> => rm(file(dataDir), { force: true });

/**
 * Those of the sandbox that runs on this directory; undefined when none does.
 * @throws ForeignFileError where another user may have written them
 */
export async function readSandboxSettings(dataDir: string): Promise<SandboxSettings | undefined> {
  const text = await readUnsharedFile(file(dataDir));
  return text === undefined ? undefined : JSON.parse(text);
}
