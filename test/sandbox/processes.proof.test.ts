import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { chmod, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { type Test, test } from 'tap';
import { commandLineOf } from '../../src/sandbox/processes.ts';

/** What a process is started with that is to be found: with a space, and longer than a terminal is wide. */
const LONG = `/tmp/a folder/${'x'.repeat(200)}/data`;

function setVariable(t: Test, name: string, value: string): void {
  const before = process.env[name];
  process.env[name] = value;
  t.teardown(() => {
    if (before === undefined) delete process.env[name];
    else process.env[name] = before;
  });
}

for (const platform of ['linux', 'darwin'] as const) {
  const program = platform === 'linux' ? '/proc' : 'ps';
  const skip =
    platform === 'linux'
      ? process.platform !== 'linux' && 'there is no /proc'
      : spawnSync('ps', ['-A']).error !== undefined && 'ps is not installed';

  test(`a process is found by its command line (${program})`, { skip }, async (t) => {
    setVariable(t, 'COLUMNS', '80');
    const child = spawn(process.execPath, ['-e', 'console.log(1); setInterval(() => {}, 1000)', 'x', '-D', LONG], {
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    t.teardown(() => child.kill('SIGKILL'));
    await once(child.stdout, 'data');
    const pid = child.pid as number;

    assert.match(await commandLineOf(pid, platform), new RegExp(` x -D ${LONG}$`));
    child.kill('SIGKILL');
    await once(child, 'exit');
    assert.equal(await commandLineOf(pid, platform), '');
  });
}

test('on Windows the command line comes from PowerShell, without quotes', async (t) => {
  const folder = await mkdtemp(join(tmpdir(), 'speechgate-powershell-'));
  t.teardown(() => rm(folder, { recursive: true }));
  const answer = '"C:\\a folder\\anvil.exe" --port 1 --cache-path "C:\\a folder\\chain\\cache" --quiet\r\n';
  const program = join(folder, 'powershell.exe');
  await writeFile(program, `#!/bin/sh\nprintf '%s' '${answer}'\n`);
  await chmod(program, 0o755);
  setVariable(t, 'PATH', `${folder}${delimiter}${process.env.PATH}`);

  assert.equal(
    await commandLineOf(5076, 'win32'),
    'C:\\a folder\\anvil.exe --port 1 --cache-path C:\\a folder\\chain\\cache --quiet',
  );
});
