/** `npm run build`: compiles src to dist, or `npm run build -- FOLDER` to a new folder, with what in it is no TypeScript. */
import { execFileSync } from 'node:child_process';
import { cpSync, mkdirSync, rmSync, statSync } from 'node:fs';
import { createRequire } from 'node:module';
import { resolve } from 'node:path';
import { fileURLToPath } from 'node:url';

const project = fileURLToPath(new URL('..', import.meta.url));
const source = resolve(project, 'src');
const dist = resolve(project, 'dist');
const target = resolve(process.argv[2] ?? dist);
const sandbox = resolve(source, 'sandbox');
const tsc = createRequire(import.meta.url).resolve('typescript/bin/tsc');

if (target === dist) rmSync(dist, { recursive: true, force: true });
mkdirSync(target);
cpSync(source, target, {
  recursive: true,
  filter: (path) => path !== sandbox && (statSync(path).isDirectory() || !path.endsWith('.ts')),
});
execFileSync(process.execPath, [tsc, '--project', 'tsconfig.build.json', '--outDir', target], {
  cwd: project,
  stdio: 'inherit',
});
