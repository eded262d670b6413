import { mkdtemp, realpath, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Test } from 'tap';

/** A new folder, removed after the test. */
export async function temporaryFolder(t: Pick<Test, 'teardown'>): Promise<string> {
  const folder = await realpath(await mkdtemp(join(tmpdir(), 'speechgate-test-')));
  t.teardown(() => rm(folder, { recursive: true, force: true }));
  return folder;
}
