/**
 * `node build/test/suite.js TIMEOUT_SECONDS FILE …`: prints the TAP of these test files. Each runs in a process of its own,
 * one more at a time than there are processors, because many wait. tap's command line does the same, but has each process
 * load a module that follows its imports: two seconds of CPU a file.
 * @see https://node-tap.org/docs/api/ (t.spawn)
 */
import { availableParallelism } from 'node:os';
import { t } from 'tap';

const [seconds, ...files] = process.argv.slice(2);
const timeout = Number(seconds) * 1000;
const env = { ...process.env, TAP_TIMEOUT: seconds };

t.jobs = availableParallelism() + 1;
t.setTimeout(0);
for (const file of files) {
  void t.spawn(process.execPath, ['--enable-source-maps', file], { buffered: true, timeout, env }, file);
}
