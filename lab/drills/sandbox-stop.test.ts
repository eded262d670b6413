import { existsSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'tap';
import { freePort } from '../../src/sandbox/free-port.ts';
import { type Child, startChild, startCommand } from '../../test/support/child.ts';
import { leftProcesses, sandboxFolder } from '../../test/support/sandbox-folder.ts';
import { until } from '../../test/support/until.ts';

const SIGNALS = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const;
/** Without tap's hooks, under which Node.js 20 can't load the compiler of `npm run sandbox`. */
const NPM = ['env', '-u', 'NODE_OPTIONS', 'npm', 'run', 'sandbox'];
/** Gives npm a terminal of its own, which closes when script ends. */
const TERMINAL = ['script', '-qec', NPM.join(' '), '/dev/null'];

type Env = Record<string, string>;
type Start = (t: Parameters<typeof startChild>[0], env: Env) => Child;

const node: Start = (t, env) => startChild(t, 'src/sandbox/main.ts', env);
const npm: Start = (t, env) => startCommand(t, NPM, { env, isGroup: true });

const STOPS: readonly [name: string, start: Start, stop: (child: Child) => unknown][] = [
  ...SIGNALS.flatMap((signal): typeof STOPS => [
    [`${signal} to node`, node, (child) => child.process.kill(signal)],
    [`${signal} to npm`, npm, (child) => child.process.kill(signal)],
    [`${signal} to npm's process group`, npm, (child) => process.kill(-(child.process.pid as number), signal)],
  ]),
  ['SIGKILL to npm', npm, (child) => child.process.kill('SIGKILL')],
  [
    'the end of its terminal',
    (t, env) => startCommand(t, TERMINAL, { env, isGroup: true }),
    (child) => child.process.kill('SIGKILL'),
  ],
  [
    '`timeout`, which signals the program and its group',
    (t, env) => startCommand(t, ['timeout', '86400', ...NPM], { env, isGroup: true }),
    (child) => child.process.kill('SIGTERM'),
  ],
];

test('the sandbox leaves no process, however it is stopped', async (t) => {
  const dataDir = await sandboxFolder(t);
  const env = { DATA_DIR: dataDir, PORT: String(await freePort()) };
  for (const [name, start, stop] of STOPS) {
    await t.test(name, async (t) => {
      const child = start(t, env);
      await child.printed(/Ctrl-C stops the sandbox/);
      const pid = (await readFile(join(dataDir, 'sandbox.pid'), 'utf8')).trim();
      t.strictSame(await leftProcesses(dataDir), ['database', 'chain']);
      stop(child);
      await until(() => !existsSync(`/proc/${pid}`), 60_000);
      t.strictSame(await leftProcesses(dataDir), []);
    });
  }
});
