import { readdir, realpath } from 'node:fs/promises';
import { join } from 'node:path';
import { findAnvil } from '../../src/sandbox/chain/anvil.ts';
import { findPostmaster } from '../../src/sandbox/postgres/postmaster.ts';
import type { Owner } from './child.ts';
import { temporaryFolder } from './temporary-folder.ts';

/**
 * A DATA_DIR for sandboxes. It is removed after the test, and so is the chain that one leaves behind which is killed,
 * also by a test that fails.
 */
export async function sandboxFolder(t: Owner): Promise<string> {
  const path = await temporaryFolder(t);
  t.teardown(async () => {
    for (const entry of await readdir(path, { recursive: true })) {
      if (!entry.endsWith('chain')) continue;
      const left = await findAnvil(await realpath(join(path, entry)));
      if (left) process.kill(left, 'SIGKILL');
    }
  });
  return path;
}

/** Which processes of a sandbox's folder run: its database, its chain. */
export async function leftProcesses(dataDir: string): Promise<string[]> {
  const database = await findPostmaster(join(dataDir, 'postgres', 'cluster', 'data'));
  const chain = await findAnvil(join(dataDir, 'chain'));
  return [...(database ? ['database'] : []), ...(chain ? ['chain'] : [])];
}
