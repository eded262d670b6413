/**
 * `npm run build`: compiles src to dist, or `npm run build -- FOLDER` to a new folder, with what in it is no TypeScript.
 * With `--package`, as `npm pack` has it run, the sandbox is compiled too, and the client gets its declarations.
 */
import { execFileSync } from 'node:child_process';
import { cpSync, mkdirSync, rmSync, statSync } from 'node:fs';
import { createRequire } from 'node:module';
import { resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: { package: { type: 'boolean', default: false } },
});
const project = fileURLToPath(new URL('..', import.meta.url));
const source = resolve(project, 'src');
const dist = resolve(project, 'dist');
const target = resolve(positionals[0] ?? dist);
const sandbox = resolve(source, 'sandbox');
const tsc = createRequire(import.meta.url).resolve('typescript/bin/tsc');

if (target === dist) rmSync(dist, { recursive: true, force: true });
mkdirSync(target);
cpSync(source, target, {
  recursive: true,
  filter: (path) => path !== sandbox && (statSync(path).isDirectory() || !path.endsWith('.ts')),
});
for (const config of values.package ? ['package', 'declarations'] : ['build']) {
  execFileSync(process.execPath, [tsc, '--project', `tsconfig.${config}.json`, '--outDir', target], {
    cwd: project,
    stdio: 'inherit',
  });
}
