import { existsSync } from 'node:fs';
import { readdir, readFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';

/** A declaration names a file of TypeScript, and means the declarations of it. */
const compiled = (path: string): string => path.replace(/(?<!\.d)\.ts$/, '.d.ts');

/** Relative imports of compiled files and declarations that lead nowhere. */
export async function brokenImports(dist: string): Promise<string[]> {
  const broken: string[] = [];
  for (const file of (await readdir(dist, { recursive: true })).filter((name) => /\.(js|d\.ts)$/.test(name))) {
    const code = await readFile(join(dist, file), 'utf8');
    for (const [, path = ''] of code.matchAll(/(?:\bfrom |\bimport\(|^import )'(\.{1,2}\/[^']+)'/gm)) {
      if (!existsSync(join(dist, dirname(file), compiled(path)))) broken.push(`${file}: ${path}`);
    }
  }
  return broken;
}
