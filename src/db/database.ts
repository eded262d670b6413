import { Kysely, PostgresDialect } from 'kysely';
import pg from 'pg';
import type { DB } from '../../db/tables.ts';
import { BoundedClient, PreparingClient } from './bounded-client.ts';

export type Database = Kysely<DB>;

const CONNECT_TIMEOUT_MS = 5_000;
const STATEMENT_TIMEOUT_MS = 10_000;
/** How much later than the server's statement timeout the client gives up, if the server reports nothing. */
const ANSWER_RESERVE_MS = 2_000;

/** int8 becomes bigint, so that an amount never passes through a floating-point number. */
const types: pg.CustomTypesConfig = {
  getTypeParser: (oid, format) =>
    Number(oid) === pg.types.builtins.INT8 && format !== 'binary' ? BigInt : pg.types.getTypeParser(oid, format),
};

interface PoolOptions {
  readonly maxConnections?: number;
  readonly statementTimeoutMs?: number;
  /** False behind a transaction-pooling proxy, which does not know prepared statements. */
  readonly namedStatements?: boolean;
}

const boundsOf = (url: string, statementTimeoutMs = STATEMENT_TIMEOUT_MS) => ({
  connectionString: url,
  connectionTimeoutMillis: CONNECT_TIMEOUT_MS,
  statement_timeout: statementTimeoutMs,
  query_timeout: statementTimeoutMs && statementTimeoutMs + ANSWER_RESERVE_MS,
  keepAlive: true,
});

/** Connects lazily: it succeeds while the database is down, and statements then fail within seconds (isUnavailable). */
export function openPool(url: string, options: PoolOptions = {}): pg.Pool {
  const bounds = boundsOf(url, options.statementTimeoutMs);
  const pool = new pg.Pool({
    ...bounds,
    max: options.maxConnections ?? 20,
    Client: (options.namedStatements === false ? BoundedClient : PreparingClient) as never,
    types,
    idle_in_transaction_session_timeout: bounds.statement_timeout,
    // Generic plans: planning a hold costs more than executing it.
    options: '-c plan_cache_mode=force_generic_plan',
    application_name: 'speechgate',
  });
  // Without a listener, an idle connection that breaks ends the process. The pool replaces it on the next use.
  pool.on('error', () => {});
  return pool;
}

export const databaseOn = (pool: pg.Pool): Database => new Kysely<DB>({ dialect: new PostgresDialect({ pool }) });

export const openDatabase = (url: string, options: PoolOptions = {}): Database => databaseOn(openPool(url, options));

/** A separate pool for graphile_worker, which reads int8 as text and keeps one connection for LISTEN. */
export function openQueuePool(
  url: string,
  options: { maxConnections: number; statementTimeoutMs?: number; lockTimeoutMs?: number },
): pg.Pool {
  const pool = new pg.Pool({
    ...boundsOf(url, options.statementTimeoutMs),
    max: options.maxConnections,
    Client: BoundedClient as never,
    ...(options.lockTimeoutMs !== undefined && { lock_timeout: options.lockTimeoutMs }),
    application_name: 'speechgate queue',
  });
  pool.on('error', () => {});
  // Without this listener, a connection that breaks in use ends the process.
  pool.on('connect', (client) => client.on('error', () => {}));
  return pool;
}
