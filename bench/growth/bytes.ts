import { sql } from 'kysely';
import type { Database } from '../../src/db/database.ts';
import { LEDGER_FLOWS, type Payers } from './flows.ts';
import { CONCURRENCY } from './rates.ts';

export interface TableSize {
  readonly table: string;
  readonly rows: number;
  readonly tableBytes: number;
  readonly indexBytes: number;
}

/** The tables that take the most, in that order. */
export async function tableSizes(db: Database): Promise<TableSize[]> {
  const { rows } = await sql<TableSize>`
    select relname as table, reltuples::float8 as rows, pg_table_size(oid)::float8 as "tableBytes",
           pg_indexes_size(oid)::float8 as "indexBytes"
    from pg_class where relkind = 'r' and relnamespace = 'public'::regnamespace and reltuples > 0
    order by pg_total_relation_size(oid) desc limit 10`.execute(db);
  return rows;
}

/** What a paid request leaves on the disk, in bytes. */
export interface BytesPerRequest {
  readonly flow: string;
  /** Of tables and indexes that have grown. */
  readonly byTable: Readonly<Record<string, number>>;
  readonly total: number;
  /** Of the log, which is written once and kept as long as backups want it. */
  readonly log: number;
}

/** Requests of a flow that are measured, after as many that make the room which they then use again. */
const REQUESTS = 10_000;

/** By the growth of the tables over many requests, once what earlier ones have left behind was vacuumed. */
export async function measureBytes(
  db: Database,
  payers: Payers,
  onProgress: (message: string) => void,
): Promise<BytesPerRequest[]> {
  const results: BytesPerRequest[] = [];
  for (const flow of ['card', 'prepaid', 'direct'] as const) {
    onProgress(`bytes of ${REQUESTS} ${flow} requests`);
    await pay(db, payers, flow);
    await sql`vacuum`.execute(db);
    await sql`checkpoint`.execute(db);
    const before = await read(db);
    await pay(db, payers, flow);
    const after = await read(db);
    const byTable: Record<string, number> = {};
    for (const [table, bytes] of after.tables) {
      const grown = (bytes - (before.tables.get(table) ?? 0)) / REQUESTS;
      if (grown > 0) byTable[table] = grown;
    }
    const total = Object.values(byTable).reduce((sum, bytes) => sum + bytes, 0);
    results.push({ flow, byTable, total, log: (after.log - before.log) / REQUESTS });
  }
  return results;
}

async function pay(db: Database, payers: Payers, flow: keyof typeof LEDGER_FLOWS): Promise<void> {
  let next = 0;
  const worker = async () => {
    while (next < REQUESTS) await LEDGER_FLOWS[flow](db, payers, next++);
  };
  await Promise.all(Array.from({ length: CONCURRENCY }, worker));
}

async function read(db: Database): Promise<{ tables: Map<string, number>; log: number }> {
  const { rows } = await sql<{ name: string; bytes: number }>`
    select relname as name, pg_total_relation_size(oid)::float8 as bytes from pg_class
    where relkind = 'r' and relnamespace = 'public'::regnamespace`.execute(db);
  const log = await sql<{ bytes: number }>`
    select pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::float8 as bytes`.execute(db);
  return { tables: new Map(rows.map(({ name, bytes }) => [name, bytes])), log: log.rows[0]?.bytes ?? 0 };
}
