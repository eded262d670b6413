#!/usr/bin/env node
// From the source where what runs TypeScript is installed, else as `npm run build` has compiled it.
const tsx = await import('tsx/esm/api').catch(() => undefined);
if (tsx) {
  tsx.register();
  await import('../src/cli/speechgate.ts');
} else {
  await import('../dist/cli/speechgate.js');
}
