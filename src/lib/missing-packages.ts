import { existsSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';

export const EXIT_MISSING = 1;

export function missingPackages(command: string, needed: readonly string[]): string | undefined {
  const folders = createRequire(import.meta.url).resolve.paths('package') ?? [];
  const missing = needed.filter((name) => !folders.some((folder) => existsSync(join(folder, name))));
  if (missing.length === 0) return undefined;
  return `speechgate ${command} needs packages that are not installed here: npm install ${missing.join(' ')}`;
}
