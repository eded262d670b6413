/**
 * `node build/test/suite.js TIMEOUT_SECONDS FILE …`: prints the TAP of these test files, each in a process of its own, two at a
 * time. tap's command line does the same, but has each process load a module that follows its imports: two seconds of CPU a file.
 * @see https://node-tap.org/docs/api/ (t.spawn)
 */
import { t } from 'tap';

const [seconds, ...files] = process.argv.slice(2);
const timeout = Number(seconds) * 1000;
const env = { ...process.env, TAP_TIMEOUT: seconds };

t.jobs = 2;
t.setTimeout(0);
for (const file of files) {
  void t.spawn(process.execPath, ['--enable-source-maps', file], { buffered: true, timeout, env }, file);
}
