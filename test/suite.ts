/**
 * `node build/test/suite.js TIMEOUT_SECONDS FILE …`: prints the TAP of these test files. A process runs files of one folder
 * of `test/` (test/files.ts), because loading the gateway takes longer than most files; and there is one process more than
 * there are processors, because many wait. They start without NODE_OPTIONS: with it tap lets them, and each process below
 * them, load a module that follows imports, which takes a fifth of all CPU.
 * @see https://node-tap.org/docs/api/ (t.spawn)
 */
import { availableParallelism } from 'node:os';
import { dirname, join } from 'node:path';
import { t } from 'tap';

const FILES_PER_PROCESS = 12;

const [seconds, ...files] = process.argv.slice(2);
const timeout = Number(seconds) * 1000;
const env = { ...process.env, TAP_TIMEOUT: seconds };

t.jobs = availableParallelism() + 1;
t.setTimeout(0);
for (const group of groups()) {
  const args = ['--enable-source-maps', '--max-semi-space-size=32', join(import.meta.dirname, 'files.js'), ...group];
  void t.spawn(
    'env',
    ['-u', 'NODE_OPTIONS', process.execPath, ...args],
    { buffered: true, timeout: timeout * group.length, env },
    group.join(' '),
  );
}

/** The files of a folder are dealt out like cards, since neighbours by name take about as long. */
function groups(): string[][] {
  const folders: Record<string, string[]> = {};
  for (const file of files) {
    const folder = dirname(file).split('/', 3).join('/');
    folders[folder] ??= [];
    folders[folder].push(file);
  }
  return Object.values(folders).flatMap((found) => {
    const count = Math.ceil(found.length / FILES_PER_PROCESS);
    return Array.from({ length: count }, (_, first) => found.filter((_, index) => index % count === first));
  });
}
