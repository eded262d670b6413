import { mkdtemp, readdir, realpath, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { findAnvil } from '../../src/sandbox/chain/anvil.ts';
import type { Owner } from './child.ts';

/**
 * A DATA_DIR for sandboxes. It is removed after the test, and so is the chain that one leaves behind which is killed,
 * also by a test that fails.
 */
export async function sandboxFolder(t: Owner): Promise<string> {
  const path = await mkdtemp(join(tmpdir(), 'speechgate-sandbox-'));
  t.teardown(async () => {
    for (const entry of await readdir(path, { recursive: true })) {
      if (!entry.endsWith('chain')) continue;
      const left = await findAnvil(await realpath(join(path, entry)));
      if (left) process.kill(left, 'SIGKILL');
    }
    await rm(path, { recursive: true, force: true });
  });
  return path;
}
