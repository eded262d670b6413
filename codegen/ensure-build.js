/**
 * `node codegen/ensure-build.js`: compiles `src/` to `dist/` unless `dist/` is newer than every source. Run by npm before
 * the commands that use `dist/`. Where TypeScript is not installed (`npm ci --omit=dev`) it keeps the `dist/` that is there,
 * and exits 1 if there is none.
 */
import { spawnSync } from 'node:child_process';
import { chmodSync, existsSync, readdirSync, statSync, utimesSync } from 'node:fs';
import { join } from 'node:path';

const COMPILER = 'node_modules/typescript-7/bin/tsc';
const OUTPUT = 'dist/speechgate.js';
const STAMP = 'dist/.tsbuildinfo';
const CONFIGURATION = ['tsconfig.json', 'tsconfig.build.json'];

if (existsSync(COMPILER) && existsSync('src')) {
  if (isStale()) build();
} else if (!existsSync(OUTPUT)) {
  console.error('dist/ is missing and TypeScript is not installed. Run npm ci without --omit=dev, or copy dist/ here.');
  process.exitCode = 1;
}

function isStale() {
  if (!existsSync(OUTPUT) || !existsSync(STAMP)) return true;
  const built = statSync(STAMP).mtimeMs;
  const isNewer = (path) => statSync(path).mtimeMs > built;
  // The time of a folder changes when a file is added or removed.
  const sources = readdirSync('src', { recursive: true }).map((name) => join('src', name));
  return ['src', ...sources, ...CONFIGURATION].some(isNewer);
}

function build() {
  const started = new Date();
  const { status } = spawnSync(process.execPath, [COMPILER, '--project', 'tsconfig.build.json'], { stdio: 'inherit' });
  if (status === 0) {
    utimesSync(STAMP, started, started);
    // npx makes a program executable only once, when it first links this folder.
    chmodSync(OUTPUT, 0o755);
  }
  process.exitCode = status ?? 1;
}
