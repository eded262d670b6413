import { existsSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';

export const EXIT_MISSING = 1;

const require = createRequire(import.meta.url);

/** What a command lacks to run: a newer Node.js, or packages. Undefined if nothing. */
export function missingPackages(
  command: string,
  needed: readonly string[],
  node: string = process.versions.node,
): string | undefined {
  const [minimum = ''] = /[\d.]+/.exec(require('../../package.json').engines.node) ?? [];
  if (node.localeCompare(minimum, 'en', { numeric: true }) < 0) {
    return `speechgate needs Node.js ${minimum} or newer, but this is ${node}. Install a newer one: https://nodejs.org`;
  }
  const missing = needed.filter((name) => !isInstalled(name));
  if (missing.length === 0) return undefined;
  return `speechgate ${command} needs packages that are not installed here. Run: npm install ${missing.join(' ')}`;
}

/** Whether Node.js finds a package of this name from here. It is not loaded. */
export const isInstalled = (name: string): boolean =>
  (require.resolve.paths(name) ?? []).some((folder) => existsSync(join(folder, name)));
