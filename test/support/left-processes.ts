import { join } from 'node:path';
import { findAnvil } from '../../src/sandbox/chain/anvil.ts';
import { findPostmaster } from '../../src/sandbox/postgres/postmaster.ts';

/** Which processes of a sandbox's folder run: its database, its chain. */
export async function leftProcesses(dataDir: string): Promise<string[]> {
  const database = await findPostmaster(join(dataDir, 'postgres', 'cluster', 'data'));
  const chain = await findAnvil(join(dataDir, 'chain'));
  return [...(database ? ['database'] : []), ...(chain ? ['chain'] : [])];
}
