/**
 * Writes db/tables.ts: the types of the schema that the migrations make, read from a freshly migrated PostgreSQL.
 * With --check it writes nothing and exits 1 when the file is out of date.
 */
import { spawnSync } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { migrate } from '../src/db/migrate.ts';
import { startPostgres } from '../src/sandbox/postgres.ts';

const dataDir = await mkdtemp(join(tmpdir(), 'speechgate-types-'));
const postgres = await startPostgres({ dataDir, durable: false });
try {
  await migrate(postgres.url);
  const { status } = spawnSync(
    process.execPath,
    [
      fileURLToPath(import.meta.resolve('kysely-codegen/dist/cli/bin.js')),
      ...[
        '--dialect',
        'postgres',
        '--url',
        postgres.url,
        '--out-file',
        fileURLToPath(new URL('tables.ts', import.meta.url)),
      ],
      ...['--include-pattern', 'public.*', '--exclude-pattern', 'schema_migration*'],
      ...['--type-mapping', JSON.stringify({ int8: 'bigint' })],
      ...(process.argv.includes('--check') ? ['--verify'] : []),
    ],
    { stdio: 'inherit' },
  );
  process.exitCode = status ?? 1;
} finally {
  await postgres.stop();
  await rm(dataDir, { recursive: true, force: true });
}
