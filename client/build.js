/** Run by `npm pack` in this folder: bundles src/callers/client into dist/, beside its declarations. */
import { execFileSync } from 'node:child_process';
import { cpSync, rmSync } from 'node:fs';
import { build } from 'esbuild';

rmSync('dist', { recursive: true, force: true });
execFileSync(process.execPath, ['../node_modules/typescript-7/bin/tsc', '--project', '.'], { stdio: 'inherit' });
await build({
  entryPoints: { index: '../src/callers/client/card.ts', x402: '../src/callers/client/index.ts' },
  outdir: 'dist',
  bundle: true,
  splitting: true,
  format: 'esm',
  target: 'es2022',
  external: ['viem'],
});
cpSync('../LICENSE', 'dist/LICENSE');
cpSync('../node_modules/canonicalize/LICENSE', 'dist/LICENSE-canonicalize');
