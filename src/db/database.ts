import { Kysely, PostgresDialect } from 'kysely';
import pg from 'pg';
import type { DB } from '../../db/tables.ts';
import { BoundedClient } from './bounded-client.ts';
import { PreparingClient } from './preparing-client.ts';

export type Database = Kysely<DB>;

/** How long a caller waits for a connection, and for one statement, before the database counts as unavailable. */
const CONNECT_TIMEOUT_MS = 5_000;
const STATEMENT_TIMEOUT_MS = 10_000;
/** How much later a connection is given up over which the server has not even told of that. */
export const ANSWER_RESERVE_MS = 2_000;

/** int8 and int8[] become bigint: an amount never passes through a floating-point number. */
const types: pg.CustomTypesConfig = {
  getTypeParser: (oid, format) =>
    Number(oid) === pg.types.builtins.INT8 && format !== 'binary' ? BigInt : pg.types.getTypeParser(oid, format),
};

export interface PoolOptions {
  readonly maxConnections?: number;
  /** 0 lets statements run as long as they need. */
  readonly statementTimeoutMs?: number;
  /** False where a pooler hands each transaction to another server connection, and knows no names of statements. */
  readonly namedStatements?: boolean;
}

/**
 * Opens a pool on the PostgreSQL database that the URL names. Connections are made when they are needed, so this
 * succeeds while the database is down; statements then fail within seconds (see isUnavailable).
 */
export function openPool(url: string, options: PoolOptions = {}): pg.Pool {
  const statementTimeout = options.statementTimeoutMs ?? STATEMENT_TIMEOUT_MS;
  const pool = new pg.Pool({
    connectionString: url,
    max: options.maxConnections ?? 20,
    Client: (options.namedStatements === false ? BoundedClient : PreparingClient) as never,
    types,
    connectionTimeoutMillis: CONNECT_TIMEOUT_MS,
    statement_timeout: statementTimeout,
    query_timeout: statementTimeout && statementTimeout + ANSWER_RESERVE_MS,
    idle_in_transaction_session_timeout: statementTimeout,
    keepAlive: true,
    // A plan for any values: planning a hold anew each time costs more than placing it.
    options: '-c plan_cache_mode=force_generic_plan',
    application_name: 'speechgate',
  });
  // An idle connection that breaks is replaced on the next use; without a listener it would end the process.
  pool.on('error', () => {});
  return pool;
}

/** The database behind a pool. Destroying it ends the pool. */
export const databaseOn = (pool: pg.Pool): Database => new Kysely<DB>({ dialect: new PostgresDialect({ pool }) });

/** Opens the PostgreSQL database that the URL names, with a pool of its own. */
export const openDatabase = (url: string, options: PoolOptions = {}): Database => databaseOn(openPool(url, options));
