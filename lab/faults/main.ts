/**
 * `npm run lab -- faults [name …] [--all-tests]`: applies each planted fault to a copy of the last commit and shows which test
 * sees it. A name is a fault or an area. `--all-tests` runs the whole suite for faults that their own tests miss. Exit
 * code: 0 when the tests see enough faults, 1 when not, 2 when it could not run.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmod, mkdtemp, readdir, readFile, rm, symlink } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { PROJECT, projectFile } from '../../test/support/project.ts';

/** A planted fault: a small mistake in `src/`, kept as a patch. Its first line says what it is, the second which tests fail. */
interface Fault {
  /** Its file in `lab/faults/`, without `.patch`. */
  readonly patch: string;
  readonly says: string;
  readonly tests: readonly string[];
}

const PATCHES = fileURLToPath(projectFile('lab/faults/'));
const FAULTS = await readFaults();
/** Of all faults. Of faults that are named, the tests have to see each. */
const MAX_NOT_SEEN = 2;
const EXIT_UNABLE = 2;
const WIDTH = Math.max(...FAULTS.map(({ patch }) => patch.length));

class UnableError extends Error {}

const stopping = new AbortController();
for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => stopping.abort());

process.exitCode = await main().catch((error) => {
  console.error(error instanceof UnableError ? error.message : error);
  return EXIT_UNABLE;
});

async function main(): Promise<number> {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: { 'all-tests': { type: 'boolean', default: false } },
  });
  const faults = select(positionals);
  const copy = await mkdtemp(join(tmpdir(), 'speechgate-faults-'));
  try {
    await checkOut(copy);
    for (const { patch } of faults) await apply(copy, patch, '--check');
    await assertControl(copy, faults);
    let seen = 0;
    for (const fault of faults) {
      const failure = await firstFailureWith(fault, copy, values['all-tests']);
      if (failure) seen += 1;
      console.log(`${fault.patch.padEnd(WIDTH)}  ${failure ?? `NOT SEEN: ${fault.says}`}`);
    }
    console.log(`\n${seen} seen, ${faults.length - seen} not seen`);
    return faults.length - seen <= (positionals.length > 0 ? 0 : MAX_NOT_SEEN) ? 0 : 1;
  } finally {
    await rm(copy, { recursive: true, force: true });
  }
}

function select(names: readonly string[]): readonly Fault[] {
  const isNamed = (name: string, { patch }: Fault) => patch === name || patch.split('/').includes(name);
  const unknown = names.find((name) => !FAULTS.some((fault) => isNamed(name, fault)));
  if (unknown !== undefined) throw new UnableError(`${unknown} is neither a fault nor an area of lab/faults/.`);
  return names.length === 0 ? FAULTS : FAULTS.filter((fault) => names.some((name) => isNamed(name, fault)));
}

async function readFaults(): Promise<Fault[]> {
  const files = (await readdir(PATCHES, { recursive: true })).filter((file) => file.endsWith('.patch')).sort();
  return Promise.all(
    files.map(async (file) => {
      const [says = '', tests = ''] = (await readFile(join(PATCHES, file), 'utf8')).split('\n', 2);
      return { patch: file.replace('.patch', ''), says, tests: tests.replace('Tests: ', '').split(' ') };
    }),
  );
}

/** A clone whose packages are those of the project. Another user may run its database, and so has to read it. */
async function checkOut(copy: string): Promise<void> {
  await chmod(copy, 0o755);
  const { code, output } = await run('git', ['clone', '--quiet', PROJECT, copy], PROJECT);
  if (code !== 0) throw new UnableError(`The project can't be cloned.\n${output}`);
  await symlink(join(PROJECT, 'node_modules'), join(copy, 'node_modules'));
}

async function apply(copy: string, patch: string, ...options: readonly string[]): Promise<void> {
  const { code, output } = await run('git', ['apply', ...options, join(PATCHES, `${patch}.patch`)], copy);
  if (code !== 0) throw new UnableError(`${patch} does not apply to the last commit. Make the patch again.\n${output}`);
}

/** Without a fault the named tests have to pass, all in one run. */
async function assertControl(copy: string, faults: readonly Fault[]): Promise<void> {
  const files = new Set(faults.flatMap(({ tests }) => tests));
  const { code, output } = await run('npm', ['test', '--', ...files], copy);
  if (code !== 0) throw new UnableError(`Without a fault the tests fail, so that they prove nothing.\n${output}`);
  console.log(`${'(no fault)'.padEnd(WIDTH)}  ${output.trim().split('\n').at(-1)}`);
}

async function firstFailureWith(fault: Fault, copy: string, isWhole: boolean): Promise<string | undefined> {
  await apply(copy, fault.patch);
  try {
    const failure = failureIn(await run('npm', ['test', '--', ...fault.tests], copy));
    return failure ?? (isWhole ? failureIn(await run('npm', ['test'], copy)) : undefined);
  } finally {
    await run('git', ['checkout', '--quiet', '.'], copy);
  }
}

/**
 * The first failed test that the runner reports in full. A fault that does not compile, a file that crashes before its
 * tests and a test that runs out of time don't count: the compiler or a busy machine saw them, no assertion did.
 */
function failureIn({ output }: { readonly output: string }): string | undefined {
  for (const [, file, title, diagnostics] of output.matchAll(/^--- (test\/\S+\.ts): (.+)\n((?:.+\n)*)/gm)) {
    if (title?.startsWith('the file ') || title === 'timeout!') continue;
    if (!diagnostics?.includes("message: 'timeout!'")) return `${file}: ${title}`;
  }
  return undefined;
}

async function run(command: string, args: readonly string[], cwd: string): Promise<{ code: number; output: string }> {
  if (stopping.signal.aborted) throw new UnableError('Stopped.');
  const child = spawn(command, args, { cwd, stdio: ['ignore', 'pipe', 'pipe'] });
  const stop = () => child.kill('SIGTERM');
  stopping.signal.addEventListener('abort', stop);
  let output = '';
  for (const stream of [child.stdout, child.stderr]) stream.on('data', (chunk) => (output += chunk));
  const [code] = await once(child, 'close');
  stopping.signal.removeEventListener('abort', stop);
  if (stopping.signal.aborted) throw new UnableError('Stopped.');
  return { code: code ?? 1, output };
}
