import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { chmod, chown, mkdtemp, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type Test, test } from 'tap';
import { readSecret } from '../../../src/cli/caller/read-secret.ts';
import { UsageError } from '../../../src/cli/usage-error.ts';

const isWindows = process.platform === 'win32';

async function secretFile(t: Test): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'speechgate-secret-'));
  t.teardown(() => rm(folder, { recursive: true, force: true }));
  const path = join(folder, 'secret');
  await writeFile(path, 'a secret\n');
  return path;
}

test('a secret is taken only from a file that nobody else can read', { skip: isWindows }, async (t) => {
  const path = await secretFile(t);
  await symlink(path, `${path}.link`);
  for (const [mode, isTaken] of [
    [0o600, true],
    [0o400, true],
    [0o700, true],
    [0o640, false],
    [0o604, false],
    [0o660, false],
    [0o602, false],
    [0o644, false],
  ] as const) {
    await chmod(path, mode);
    for (const place of [path, `${path}.link`]) {
      const reading = readSecret(place, '--wallet');
      if (isTaken) assert.equal(await reading, 'a secret', mode.toString(8));
      else await assert.rejects(reading, /^Error: --wallet: .* chmod 600 '/, mode.toString(8));
    }
  }
});

test("another user's file is no secret, and a missing one is told", {
  skip: process.geteuid?.() !== 0 && 'only root can give a file away',
}, async (t) => {
  const path = await secretFile(t);
  await chmod(path, 0o600);
  await chown(path, 54_321, 54_321);
  await assert.rejects(readSecret(path, '--account'), UsageError);
  await assert.rejects(readSecret(`${path}.none`, '--account'), /can't be read/);
});

test('a secret may come from a pipe', { skip: isWindows }, async () => {
  const url = new URL('../../../src/cli/caller/read-secret.ts', import.meta.url);
  const script = `const { readSecret } = await import(${JSON.stringify(url)});
    console.log(await readSecret('/dev/fd/3', '--wallet'));`;
  const piped = 'echo secret | "$0" --import tsx --input-type=module -e "$1" 3<&0';
  assert.equal(String(execFileSync('sh', ['-c', piped, process.execPath, script])), 'secret\n');
});
