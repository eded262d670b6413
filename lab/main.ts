/** `npm run lab -- NAME [OPTION …]`, see lab/README.md: runs `lab/NAME/main.ts`, or the test `lab/drills/NAME.test.ts`. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, readdirSync } from 'node:fs';

const DRILL_TIMEOUT_SECONDS = 7200;

const [name = '', ...options] = process.argv.slice(2);
const programs = readdirSync('lab').filter((folder) => existsSync(`lab/${folder}/main.ts`));
const drills = readdirSync('lab/drills')
  .filter((file) => file.endsWith('.test.ts'))
  .map((file) => file.replace('.test.ts', ''));

if (programs.includes(name)) process.exitCode = await run(`build/lab/${name}/main.js`, ...options);
else if (drills.includes(name)) {
  const timeout = `--timeout=${DRILL_TIMEOUT_SECONDS}`;
  process.exitCode = await run('build/test/run.js', timeout, ...options, `lab/drills/${name}.test.ts`);
} else {
  console.error(`Usage: npm run lab -- NAME, where NAME is one of: ${[...programs, ...drills].sort().join(', ')}.`);
  process.exitCode = 2;
}

/** A signal goes to the program, which then ends what it has started. */
async function run(...args: string[]): Promise<number> {
  const child = spawn(process.execPath, args, { stdio: 'inherit' });
  for (const signal of ['SIGINT', 'SIGTERM'] as const) process.on(signal, () => child.kill(signal));
  const [code] = await once(child, 'close');
  return code ?? 1;
}
