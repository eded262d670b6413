#!/usr/bin/env node
// A checkout runs its source, where what runs TypeScript is installed. All else runs what was compiled.
import { existsSync } from 'node:fs';

const isCheckout = existsSync(new URL('../src/cli/speechgate.ts', import.meta.url));
const tsx = isCheckout ? await import('tsx/esm/api').catch(() => undefined) : undefined;
if (tsx) {
  tsx.register();
  await import('../src/cli/speechgate.ts');
} else {
  await import('../dist/cli/speechgate.js');
}
