/**
 * `node build/test/suite.js TIMEOUT_SECONDS FILE …`: prints the TAP of these test files. A process runs files of one folder
 * (test/files.ts), because loading the gateway takes longer than most files; and there is one process more than there are
 * processors, because many wait. tap's command line has each process load a module that follows its imports: two seconds
 * of CPU a file.
 * @see https://node-tap.org/docs/api/ (t.spawn)
 */
import { availableParallelism } from 'node:os';
import { dirname, join } from 'node:path';
import { t } from 'tap';

const FILES_PER_PROCESS = 6;

const [seconds, ...files] = process.argv.slice(2);
const timeout = Number(seconds) * 1000;
const env = { ...process.env, TAP_TIMEOUT: seconds };

t.jobs = availableParallelism() + 1;
t.setTimeout(0);
for (const group of groups()) {
  const args = ['--enable-source-maps', join(import.meta.dirname, 'files.js'), ...group];
  void t.spawn(process.execPath, args, { buffered: true, timeout: timeout * group.length, env }, group.join(' '));
}

function groups(): string[][] {
  const found: string[][] = [];
  for (const file of files) {
    const last = found.at(-1);
    const isOfLast = last && last.length < FILES_PER_PROCESS && dirname(last[0] ?? '') === dirname(file);
    if (isOfLast) last.push(file);
    else found.push([file]);
  }
  return found;
}
